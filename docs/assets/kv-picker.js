/* Pickers: a field to type into, with a list that narrows. Keyboard and screen readers as the ARIA pattern of a
   combobox asks. Without scripts the field is a plain link to the index. */
(function () {
  "use strict";

  const { make, load } = kvreport;
  const MOST = 80;
  let made = 0;

  /* Letters and digits only, so that "rtx4090", "RTX 4090" and "rtx-4090" are one. */
  const plain = (text) => text.toLowerCase().replace(/[^a-z0-9.]+/g, "");

  /* A size of memory, as "20 GB": what has so much, and no name that happens to hold these letters. */
  const MEMORY = /(?:^|\s)(\d{1,4})\s*gi?b(?=\s|$)/i;

  /* Items that have every word of the query, somewhere in their names. First comes what is called just so ("h100"), then
     what has fewest other words: a release before its quantized copies. */
  function narrowed(items, text) {
    const [size, number] = MEMORY.exec(text) || [];
    const query = size && items.some((item) => item.memory) ? text.replace(size, " ") : text;
    if (query !== text) {
      const own = items.filter((item) => item.memory === `${number}gb`);
      if (own.length) return query.trim() ? narrowed(own, query) : own;
    }
    const words = text.toLowerCase().split(/[\s,]+/).map(plain).filter(Boolean);
    const found = items.filter((item) => words.every((word) => item.plain.includes(word)));
    if (!words.length) return found;
    const whole = plain(text);
    const others = new Map(
      found.map((item) => [item, item.called.includes(whole) ? -1 : unasked(item, words)]),
    );
    return found.sort((a, b) => others.get(a) - others.get(b));
  }

  /* Words of a name that the query does not have. */
  const unasked = (item, words) =>
    item.name.toLowerCase().split(/[\s-]+/).map(plain).filter((part) =>
      part && !words.some((word) => part.includes(word) || word.includes(part))
    ).length;

  /* The machine that a text names, such as "5090 + 2x 3090": each part the first accelerator that has its words. */
  function machineOf(items, query) {
    const parts = query.split("+").map((part) => part.trim()).filter(Boolean);
    const found = parts.map((part) => {
      const [, before, name, after] =
        /^(?:(\d{1,2})\s*[x×*]\s*)?(.+?)(?:\s*[x×*]\s*(\d{1,2}))?$/i.exec(part) || [];
      const [item] = name ? narrowed(items, name).sort((a, b) => a.plain.length - b.plain.length) : [];
      return item && { item, times: Number(before || after || 1) };
    });
    if (found.length < 2 || !found.every(Boolean)) return [];
    const said = (name) => found.map(({ item, times }) => name(item, times)).join("+");
    return [{
      id: said((item, times) => (times > 1 ? `${item.id}*${times}` : item.id)),
      name: said((item, times) => ` ${times > 1 ? `${times} × ` : ""}${item.name} `).trim().replace(
        / +/g,
        " ",
      ),
      maker: "unequal GPUs of one machine",
      release: "",
      common: false,
    }];
  }

  const itemOf = ([id, name, maker, release, common, aliases, memory]) => ({
    id,
    name,
    maker,
    release,
    common: Boolean(common),
    memory: plain((memory || "").replace("GiB", "GB")),
    plain: plain([id, name, maker, ...aliases].join(" ")),
    called: [id, name, ...aliases].map(plain),
  });

  /* The catalog's names, read when they are first needed. */
  const names = (base) =>
    load(new URL("picker.json", base)).then((file) => ({
      models: file.models.map(itemOf),
      gpus: file.gpus.map((gpu) => {
        const rented = Object.entries(file.instances || {}).filter(([, [id]]) => id === gpu[0]);
        return itemOf(gpu.with(5, [...gpu[5], ...rented.map(([name]) => name)]));
      }),
    }));

  /* Make a picker of a placeholder: <a data-kv-picker="models" data-kv-name="model" href="…">.
     Returns {field, set(id, name)}; chosen(id) is called with each choice. */
  function picker(place, base, chosen) {
    const kind = place.dataset.kvPicker, id = `kv-picker-${made += 1}`;
    const help = place.getAttribute("aria-describedby");
    const field = make("input", {
      type: "text",
      role: "combobox",
      id: place.dataset.kvId || false,
      name: place.dataset.kvName,
      autocomplete: "off",
      spellcheck: "false",
      "aria-expanded": "false",
      "aria-autocomplete": "list",
      "aria-controls": id,
      "aria-describedby": help,
      value: place.textContent.trim(),
    });
    // A list that scrolls is a stop of the keyboard in some browsers, and it is hidden as soon as the field is left.
    const list = make("ul", {
      role: "listbox",
      id,
      hidden: true,
      tabindex: "-1",
      "aria-label": place.dataset.kvLabel,
    });
    const box = make("span", { class: "kv-picker" }, field, list);
    let shown = [], listed = "", active = -1, current = field.value, value = place.dataset.kvValue;

    async function open(query) {
      const items = (await names(base))[kind];
      if (document.activeElement !== field) return;
      const joined = place.dataset.kvMachines !== undefined && query.includes("+");
      const found = joined ? machineOf(items, query) : narrowed(items, query);
      const common = found.filter((item) => item.common);
      const others = found.filter((item) => !item.common).slice(0, MOST - common.length);
      // What is common comes first, unless the words name another one.
      const groups = [["Commonly used", common], [
        kind === "models" && !query ? "All others, newest first" : "All others",
        others,
      ]];
      if (found.length && !found[0].common) groups.reverse();
      shown = groups.flatMap(([, items]) => items);
      listed = query;
      const rest = found.length - shown.length;
      list.replaceChildren(
        ...group(groups[0][0], groups[0][1], 0),
        ...group(groups[1][0], groups[1][1], groups[0][1].length),
        ...(shown.length ? [] : [make("li", { class: "kv-empty" }, `No name has “${query}”.`)]),
        ...(rest > 0 ? [make("li", { class: "kv-empty" }, `${rest} more: type to narrow the list.`)] : []),
      );
      list.removeAttribute("hidden");
      field.setAttribute("aria-expanded", "true");
      activate(query && shown.length ? 0 : -1);
    }

    function group(title, items, first) {
      if (!items.length) return [];
      const label = `${id}-${first}`;
      return [
        make(
          "li",
          { role: "presentation" },
          make("strong", { id: label }, title),
          make(
            "ul",
            { role: "group", "aria-labelledby": label },
            ...items.map((item, n) => {
              const option = make(
                "li",
                { role: "option", id: `${id}-option-${first + n}`, "aria-selected": "false" },
                item.name,
                make("small", {}, ` ${item.maker}${item.release ? ` · ${item.release}` : ""}`),
              );
              option.addEventListener("pointerdown", (event) => {
                event.preventDefault();
                take(item);
              });
              return option;
            }),
          ),
        ),
      ];
    }

    function activate(n) {
      active = n;
      for (const option of list.querySelectorAll("[role=option]")) {
        const here = option.id === `${id}-option-${n}`;
        option.setAttribute("aria-selected", String(here));
        if (here) option.scrollIntoView({ block: "nearest" });
      }
      if (n >= 0) field.setAttribute("aria-activedescendant", `${id}-option-${n}`);
      else field.removeAttribute("aria-activedescendant");
    }

    function close() {
      list.setAttribute("hidden", "");
      field.setAttribute("aria-expanded", "false");
      field.removeAttribute("aria-activedescendant");
    }

    function take(item) {
      field.value = item.name; // whatever was typed to find it
      set(item.id, item.name);
      close();
      chosen(item.id, item);
      if (place.dataset.kvClear !== undefined) {
        field.value = "";
        set("", "");
      }
    }

    /* What is marked, of the names that the words in the field have; nothing is marked before there are words. */
    async function enter() {
      if (field.value !== current && field.value !== listed) await open(field.value);
      if (active >= 0) take(shown[active]);
      else if (!field.value || field.value === current) close();
    }

    function set(next, name) {
      value = next;
      current = name;
      kvreport.put(field, name);
    }

    const isOpen = () => !list.hasAttribute("hidden");
    field.addEventListener("focus", () => {
      field.select();
      open("");
    });
    field.addEventListener("click", () => isOpen() || open(""));
    field.addEventListener("input", () => open(field.value));
    field.addEventListener("blur", () => {
      close();
      field.value = current; // what is not chosen is not taken
    });
    field.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        if (!isOpen()) open("");
        else if (shown.length) activate((active + step + shown.length) % shown.length);
      } else if (event.key === "Enter" && (isOpen() || field.value !== current)) { // the names may be on their way
        event.preventDefault();
        enter();
      } else if (event.key === "Escape" && isOpen()) {
        event.stopPropagation();
        close();
        field.value = current;
      }
    });
    const focused = document.activeElement === place;
    place.replaceWith(box);
    if (focused) field.focus();
    return { field, set, value: () => value };
  }

  Object.assign(kvreport, { picker, names, narrowed, itemOf, plainName: plain });
})();
