/* Indexes and long tables: facets, a text filter, sorting; what is chosen stands in the address. */
(function () {
  "use strict";

  const { $, $$, make, count, plural, tokens, readState, writeState, ignoredNote, debounce, matches } =
    kvreport;
  const { rowsOf, putRows, whole } = kvreport;

  /* --- sorting ------------------------------------------------------------------------------------ */

  function sortable(table, changed = (_) => {}) {
    const heads = $$("thead th", table);
    heads.forEach((head, index) => {
      if ($(".kv-sort", head)) return;
      const button = make("button", { type: "button", class: "kv-sort" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", async () => {
        await whole(table);
        const numeric = head.classList.contains("kv-num");
        const now = head.getAttribute("aria-sort");
        const falling = now ? now === "ascending" : numeric;
        sortBy(table, index, falling);
        changed(`${falling ? "-" : ""}${slug(head)}`);
      });
    });
  }

  const slug = (head) =>
    head.textContent.trim().toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");

  /* What a cell is sorted by: "70.6B", "128K" and "1,024" as numbers, words as words, a dash behind everything. */
  const SCALES = { K: 2 ** 10, k: 1e3, M: 2 ** 20, B: 1e9, T: 1e12 };
  function told(text) {
    if (text === "–" || text === "") return null;
    const found = /^([\d,]+(?:\.\d+)?)([KMBTk])?$/.exec(text);
    return found ? Number(found[1].replace(/,/g, "")) * (SCALES[found[2]] || 1) : text.toLowerCase();
  }

  /* A quantile of ascending numbers, between two of them where it falls there. */
  function quantile(numbers, share) {
    const place = share * (numbers.length - 1), below = Math.floor(place);
    return numbers[below] + (place - below) * ((numbers[below + 1] ?? numbers[below]) - numbers[below]);
  }

  const percent = (share) => `${(100 * share).toFixed(share < 0.01 ? 2 : 1)}%`;

  function sortBy(table, index, falling) {
    $$("thead th", table).forEach((head, n) => {
      if (n === index) head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const numeric = $$("thead th", table)[index].classList.contains("kv-num");
    const keyed = rowsOf(table).map((row) => {
      const cell = row.cells[index];
      if (!cell || cell.colSpan > 1) return [null, row];
      const value = cell.dataset.value;
      return [value !== undefined ? Number(value) : told(cell.textContent.trim()), row];
    });
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return Number(a === null) - Number(b === null);
      // A reason in words where others have a number comes last, whichever way.
      if (numeric && typeof a !== typeof b) return typeof a === "string" ? 1 : -1;
      const order = typeof a === "number" && typeof b === "number"
        ? a - b
        : String(a).localeCompare(String(b), "en", { numeric: true });
      return falling ? -order : order;
    });
    putRows(table, keyed.map(([, row]) => row));
  }

  /* --- indexes: facets, text, sort ---------------------------------------------------------------- */

  function index(tools) {
    const table = /** @type {HTMLTableElement} */ (document.getElementById(tools.dataset.kvIndex));
    const noun = tools.dataset.kvNoun;
    let rows = rowsOf(table);
    const text = $("input[name=name]", tools), said = $(".kv-said", tools);
    const errors = said.nextElementSibling;
    const facets = $$("fieldset", tools).map((field) => ({
      key: field.dataset.facet,
      label: $("legend", field).textContent,
      chips: $$(".kv-chip:not(.kv-more)", field),
      more: $(".kv-more", field),
    }));
    const heads = $$("thead th", table).map(slug);
    const known = { name: null, sort: heads.flatMap((head) => [head, `-${head}`]) };
    for (const facet of facets) known[facet.key] = facet.chips.map((chip) => chip.value);
    let state = {}, ignored = [];

    const valuesOf = (row, key) => (row.dataset[key] || "").split("|");
    const passes = (row, without) =>
      (without === "name" || !state.name ||
        matches(row.dataset.search ?? row.textContent.toLowerCase(), state.name[0])) &&
      facets.every(({ key }) =>
        key === without || !state[key] || valuesOf(row, key).some((one) => state[key].includes(one))
      );

    function show() {
      const filtered = Object.keys(state).some((key) => key !== "sort");
      if (table.tBodies[1]?.dataset.kvRows) {
        if (filtered) {
          whole(table).then(() => {
            rows = rowsOf(table);
            show();
          });
        } else {said.replaceChildren(
            `All ${plural(Number(tools.dataset.kvNumber), noun)}.`,
            ignoredNote(ignored) || "",
          );}
        return;
      }
      if (rows.length < tools.dataset.kvNumber) rows = rowsOf(table);
      let shown = 0;
      for (const row of rows) {
        row.hidden = !passes(row);
        if (!row.hidden) shown += 1;
      }
      for (const { key, chips, more } of facets) {
        const left = new Map();
        for (const row of rows) {
          if (!passes(row, key)) continue;
          for (const one of valuesOf(row, key)) left.set(one, (left.get(one) || 0) + 1);
        }
        for (const chip of chips) {
          const on = Boolean(state[key]?.includes(chip.value));
          chip.setAttribute("aria-pressed", on);
          $("small", chip).textContent = left.get(chip.value) || 0;
          if (on && chip.hidden) chip.hidden = false;
        }
        if (more && more.getAttribute("aria-expanded") === "true") more.hidden = true;
      }
      kvreport.put(text, state.name?.[0] || "");
      const words = filterWords();
      table.classList.toggle("kv-filtered", words.length > 0);
      said.replaceChildren(
        shown === rows.length && !words.length
          ? `All ${plural(rows.length, noun)}.`
          : `${count(shown)} of ${plural(rows.length, noun)}${words.length ? ": " + words.join("; ") : ""}.`,
      );
      errors.replaceChildren(...(words.length && shown ? [errorsOf(rows.filter((row) => !row.hidden))] : []));
      if (!shown) said.append(` ${culprit()}`);
      if (words.length) {
        said.append(
          " ",
          make("button", {
            type: "button",
            class: "kv-chip",
            onclick: () => {
              state = state.sort ? { sort: state.sort } : {};
              ignored = [];
              apply();
              text.focus(); // the button is gone
            },
          }, "Clear filters"),
        );
      }
      said.append(ignoredNote(ignored) || "");
    }

    /* How far off the rows are that a filter leaves, apart by the facet that the tools name; the column is that of errors. */
    function errorsOf(left) {
      const by = facets.find(({ key }) => key === tools.dataset.kvErrors);
      const column = heads.indexOf("error"), groups = new Map();
      for (const row of by ? left : []) {
        const { textContent, dataset } = row.cells[column], [key] = valuesOf(row, by.key);
        const error = Math.abs(Number(dataset.value ?? told(textContent.trim())));
        groups.set(key, [...(groups.get(key) || []), error]);
      }
      if (!groups.size) return "";
      const lines = [...groups].sort(([, a], [, b]) => b.length - a.length).map(([key, found]) => {
        found.sort((a, b) => a - b);
        const figures = [count(found.length), percent(quantile(found, 0.5)), percent(quantile(found, 0.9))];
        const name = make("th", { scope: "row" }, key);
        return make("tr", {}, name, ...figures.map((text) => make("td", { class: "kv-num" }, text)));
      });
      const titles = ["Figures", "Median", "90th percentile"];
      const caption = "Errors of the rows that the filters leave, in either direction";
      const head = make(
        "tr",
        {},
        make("th", { scope: "col" }, by.label),
        ...titles.map((title) => make("th", { scope: "col", class: "kv-num" }, title)),
      );
      const table = make(
        "table",
        { class: "kv-table" },
        make("caption", {}, caption),
        make("thead", {}, head),
        make("tbody", {}, ...lines),
      );
      return make(
        "div",
        { class: "kv-scroll", role: "region", tabindex: "0", "aria-label": caption },
        table,
      );
    }

    function filterWords() {
      const words = state.name ? [`Name contains “${state.name[0]}”`] : [];
      const shown = (chips, value) =>
        chips.find((chip) => chip.value === value).firstChild.textContent.trim();
      for (const { key, label, chips } of facets) {
        if (state[key]) {
          words.push(`${label}: ${state[key].map((value) => shown(chips, value)).join(" or ")}`);
        }
      }
      return words;
    }

    function culprit() {
      const active = ["name", ...facets.map((facet) => facet.key)].filter((key) => state[key]);
      const would = active.map((key) => [key, rows.filter((row) => passes(row, key)).length]).filter((
        [, n],
      ) => n);
      if (!would.length) return "Several filters together leave no row. Clear one of them.";
      return would.map(([key, n]) =>
        `Without the filter ${key === "name" ? "Name" : facets.find((f) => f.key === key).label}: ${
          plural(n, noun)
        }.`
      ).join(" ");
    }

    function sortAsAsked() {
      const asked = state.sort?.[0];
      if (!asked) return;
      const sort = () => sortBy(table, heads.indexOf(asked.replace(/^-/, "")), asked.startsWith("-"));
      if (table.tBodies[1]?.dataset.kvRows) whole(table).then(sort);
      else sort();
    }

    function apply(replace) {
      show();
      writeState(state, replace);
    }

    function restore() {
      ({ state, ignored } = readState(known, facets.map((facet) => facet.key)));
      sortAsAsked();
      show();
    }

    const takeText = () => {
      if (text.value) state.name = [text.value];
      else delete state.name;
    };
    const typed = debounce(() => {
      takeText();
      apply(true);
    }, 80);
    text.addEventListener("input", typed);
    for (const { key, chips, more } of facets) {
      for (const chip of chips) {
        chip.addEventListener("click", () => {
          takeText(); // what was typed a moment ago counts too
          const now = new Set(state[key] || []);
          if (!now.delete(chip.value)) now.add(chip.value);
          if (now.size) state[key] = [...now];
          else delete state[key];
          apply();
        });
      }
      more?.addEventListener("click", () => {
        chips.forEach((chip) => {
          chip.hidden = false;
        });
        more.setAttribute("aria-expanded", "true");
        more.hidden = true;
      });
    }
    sortable(table, (asked) => {
      state.sort = [asked];
      writeState(state, true);
    });
    const early = text.value; // typed while this script was on its way
    restore();
    if (early && !state.name) {
      text.value = early;
      typed();
    }
    return { restore };
  }

  /* --- a text filter alone (GPU pages, machines) -------------------------------------------------------------- */

  /* The items of a page's lists that have most words of a text, and their headings. */
  function listFilter(tools) {
    const text = $("input", tools), said = tools.nextElementSibling;
    const lists = $$("ul", tools.closest("article")).filter((list) =>
      list.previousElementSibling?.matches("h2")
    );
    const items = lists.flatMap((list) => $$("li", list));
    function show() {
      const words = text.value.toLowerCase().split(/[^\w.-]+/).filter((word) => word.length > 1);
      const found = items.map((item) =>
        words.filter((word) => item.textContent.toLowerCase().includes(word)).join(", ")
      );
      const most = Math.max(...found.map((own) => own.length));
      items.forEach((item, n) => (item.hidden = most > 0 && found[n].length < most));
      const shown = items.filter((item) => !item.hidden);
      for (const list of lists) {
        list.hidden = list.previousElementSibling.hidden = !shown.some((item) => list.contains(item));
      }
      said.textContent = !words.length
        ? ""
        : most
        ? `${plural(shown.length, "question|questions")} of ${count(items.length)} with: ${
          found[items.indexOf(shown[0])]
        }.`
        : `No question has these words. All ${count(items.length)} are shown.`;
    }
    const restore = () => {
      kvreport.put(text, new URLSearchParams(location.search).get("q") || text.value);
      show();
    };
    text.addEventListener(
      "input",
      debounce(() => {
        writeState({ q: text.value }, true);
        show();
      }, 80),
    );
    restore();
    return { restore };
  }

  function textFilter(tools) {
    const table = /** @type {HTMLTableElement} */ (document.getElementById(tools.dataset.kvFilter));
    const text = $("input[name=name]", tools);
    const said = tools.nextElementSibling;
    const words = (row) => row.dataset.search || `${row.cells[0].textContent} ${row.id}`.toLowerCase();
    let least = 0; // tokens that a row is to hold
    const early = text.value; // typed while this script was on its way
    const formed = Boolean($("[data-kv-gpupage]")); // the rest of the address is its form's, which says what is not known
    function restore() {
      const { state, ignored } = readState({ name: null, context: null });
      kvreport.put(text, state.name?.[0] || "");
      least = formed ? 0 : tokensOf(state.context?.[0] || "");
      show();
      said.append((!formed && ignoredNote(ignored)) || "");
    }
    function write() {
      const others = formed ? Object.fromEntries(new URLSearchParams(location.search)) : {};
      writeState({ ...others, name: text.value, ...least && { context: String(least) } }, true);
    }
    /* 64K or 65536 as a number; 0 for other texts. */
    function tokensOf(text) {
      const [, number = 0, unit = ""] = /^(\d+)([KM]?)$/i.exec(text.trim()) || [];
      return Number(number) * ({ K: 1 << 10, M: 1 << 20 }[unit.toUpperCase()] || 1);
    }
    const longest = (row) =>
      Math.max(
        ...[...row.cells].slice(1).map(({ textContent: text }) => /[KM]$/.test(text) ? tokensOf(text) : 0),
      );
    const lengths = () => rowsOf(table).some((row) => longest(row) > 0);
    function show() {
      const query = text.value, rows = rowsOf(table);
      if (query && table.tBodies[1]?.dataset.kvRows) return void whole(table).then(show);
      const long = least && lengths();
      for (const link of least && !long ? $$("tbody th a", table) : []) link.search = `?context=${least}`;
      const shown =
        rows.filter((row) =>
          !(row.hidden = (Boolean(query) && !matches(words(row), query)) || (long && longest(row) < least))
        ).length;
      table.classList.toggle("kv-filtered", Boolean(query || long));
      const context = !least
        ? ""
        : long
        ? `${count(shown)} of ${count(rows.length)} ${tools.dataset.kvNoun} hold a context of ${
          tokens(least)
        }.`
        : `The ${tools.dataset.kvNoun} are listed for the context in the table’s title. The page of each has the models that hold ${
          tokens(least)
        } tokens.`;
      said.textContent = query
        ? `${count(shown)} of ${count(rows.length)} ${tools.dataset.kvNoun}: name${
          rows[0]?.dataset.search ? " or memory" : ""
        } contains “${query}”.${elsewhere(query)} ${
          long ? `All of them hold a context of ${tokens(least)}.` : context
        }`
        : context;
      if ((query || long) && shown < rows.length && (query ? !shown : long)) {
        said.append(" ", ...instead(query));
      }
    }
    /* What a filter that leaves no row leads to. */
    const instead = (query) => [
      make("button", {
        type: "button",
        class: "kv-chip",
        onclick: () => {
          text.value = "";
          least = 0;
          show();
          write();
          text.focus();
        },
      }, "Clear the filter"),
      ...(!query || !/^model/.test(tools.dataset.kvNoun) ? [] : [
        " ",
        make(
          "a",
          { href: new URL(`models/?name=${encodeURIComponent(query)}`, kvreport.root).href },
          `Models named “${query}” on any GPU`,
        ),
      ]),
    ];
    /* What the page lists below its table, by reason, and has no row. */
    function elsewhere(query) {
      const found = $$(".kv-groups dt", table.closest(".md-content") || document).map((reason) => {
        const members = $$("[id]", reason.nextElementSibling);
        const named = (one) => matches(`${one.textContent} ${one.id}`.toLowerCase(), query);
        return [members.filter(named).length, reason.firstChild.textContent.trim()];
      }).filter(([number]) => number);
      const told = found.map(([number, reason]) => `${count(number)} (${reason})`).join(", ");
      return told ? ` Not in the table: ${told}.` : "";
    }
    text.addEventListener(
      "input",
      debounce(() => {
        show();
        write();
      }, 80),
    );
    restore();
    if (early && !new URLSearchParams(location.search).get("name")) {
      text.value = early;
      show();
      write();
    }
    // A form that is changed gives the table other rows.
    const changes = new MutationObserver(show);
    changes.observe(table.tBodies[0], { childList: true });
    return { restore, release: () => changes.disconnect() };
  }

  Object.assign(kvreport, { listFilter, index, textFilter, sortable });
})();
