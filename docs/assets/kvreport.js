/* What our pages do beyond being read: sort and filter tables, keep what you see in the URL, switch
   units, answer other questions than the printed one, and bring charts to life when they come into
   view. Every page is whole without this file. No dependency; works with and without the theme's
   instant navigation. */
(function () {
  "use strict";

  const ASSETS = new URL(".", /** @type {HTMLScriptElement} */ (document.currentScript).src).href;
  const GIB = 2 ** 30;

  /* --- small tools ---------------------------------------------------------------------------- */

  const $ = (selector, /** @type {ParentNode} */ root = document) => root.querySelector(selector);
  const $$ = (selector, /** @type {ParentNode} */ root = document) =>
    Array.from(root.querySelectorAll(selector));

  function make(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (value === false || value === null || value === undefined) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  /* A number as people read it. The browser's own formatter takes longer to load than a whole table to write. A half
     goes to the even digit, as where the build prints the same number. */
  function fixed(value, digits) {
    if (!Number.isFinite(value)) return String(value);
    const [whole, rest] = rounded(Math.abs(value), digits ?? 3).split(".");
    const part = digits === undefined ? (rest || "").replace(/0+$/, "") : rest;
    const text = whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
    return value < 0 && /[1-9]/.test(text) ? `-${text}` : text;
  }
  function rounded(value, digits) {
    const text = value.toFixed(digits), scaled = value * 10 ** digits, low = Math.floor(scaled);
    // Halfway, and not only after the multiplication: then more digits are a 5 and zeros.
    if (scaled - low !== 0.5 || !/^\d*50*$/.test(value.toFixed(digits + 55).split(".")[1].slice(digits))) {
      return text;
    }
    return ((low + (low % 2)) / 10 ** digits).toFixed(digits);
  }
  const count = (n) => fixed(n);
  const gib = (bytes, digits = 2) => fixed(bytes / GIB, digits);
  /* What is missing is never printed as nothing. */
  const missing = (bytes) => gib(Math.max(bytes, GIB / 10), 1);
  /* A number with its noun; "request|requests" has the noun's forms in the order of the language's categories. */
  const ORDER = ["zero", "one", "two", "few", "many", "other"];
  const rule = new Intl.PluralRules(document.documentElement.lang || "en");
  const has = /** @type {string[]} */ (rule.resolvedOptions().pluralCategories);
  const order = ORDER.filter((name) => has.includes(name));

  function form(n, forms) {
    const given = forms.split("|");
    return given[Math.min(order.indexOf(rule.select(n)), given.length - 1)];
  }

  const plural = (n, forms) => `${count(n)} ${form(n, forms)}`;

  /* The verb of a name that may stand for several: "2 × H100", "vLLM 0.24 and 0.25". */
  const verb = (name, forms) => forms.split("|")[/^\d+ ×| (and|to) \d/.test(name) ? 1 : 0];

  function tokens(n) {
    if (n >= 1 << 20 && n % (1 << 20) === 0) return `${n / (1 << 20)}M`;
    if (n >= 1024 && n % 1024 === 0) return `${n / 1024}K`;
    return count(n);
  }

  /* A number of parameters as people say it: 8.03B, 270M. */
  function parametersText(n) {
    for (const [unit, factor] of Object.entries({ T: 1e12, B: 1e9, M: 1e6 })) {
      if (n >= factor) {
        const value = n / factor;
        return `${value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2)}${unit}`;
      }
    }
    return count(n);
  }

  /* The way back to what has the focus in `root`, though its row be drawn again: by the row's id and the place in it. */
  function focusIn(root) {
    const focused = document.activeElement;
    if (!(focused instanceof HTMLElement) || focused === document.body || !root.contains(focused)) {
      return () => {};
    }
    const row = focused.closest("tr[id]"), stops = "a, button, input, select";
    const place = row ? $$(stops, row).indexOf(focused) : -1;
    return () => {
      const drawn = row && document.getElementById(row.id);
      const found = focused.isConnected || !drawn ? focused : $$(stops, drawn)[place];
      if (found instanceof HTMLElement) found.focus({ preventScroll: true });
    };
  }

  const onDevices = (n, name) => (n === 1 ? `one ${name}` : `${n} × ${name}`);

  const fetched = new Map();
  function load(url) {
    const key = new URL(url, location.href).href;
    if (!fetched.has(key)) {
      fetched.set(
        key,
        fetch(key).then((answer) => {
          if (!answer.ok) throw new Error(`${answer.status} for ${key}`);
          return answer.json();
        }),
      );
      fetched.get(key).catch(() => fetched.delete(key));
    }
    return fetched.get(key);
  }

  /**
   * What a page reads of site.json, from files that travel lighter. Needs kv-capacity.js.
   * @param {URL} base downloads/v1/
   * @param {any} one [slug, name] of the only model of a page, which needs no other's name
   */
  const facts = memoized(async (base, one) => {
    const file = (name) => load(new URL(`explore/${name}.json`, base));
    const [site, names] = await Promise.all([file("facts"), one ? { models: [one] } : file("names")]);
    return kvCapacity.unpacked(site, names.models);
  });

  function memoized(make) {
    const made = new Map();
    return (...given) => {
      const key = JSON.stringify(given);
      if (!made.has(key)) {
        made.set(key, make(...given));
        made.get(key).catch(() => made.delete(key));
      }
      return made.get(key);
    };
  }

  const scripts = new Map();
  function script(name) {
    if (!scripts.has(name)) {
      scripts.set(
        name,
        new Promise((done, failed) => {
          const node = make("script", {
            src: ASSETS + name,
            onload: done,
            onerror: () => {
              scripts.delete(name);
              failed(new Error(name));
            },
          });
          node.async = false; // fetched side by side, run in the order of asking
          document.head.append(node);
        }),
      );
    }
    return scripts.get(name);
  }

  function usersCell(users, verdict) {
    if (verdict === "context_exceeds_model" || users < 1) {
      const [word, reason] = kvKernel.words.no_request[verdict] || ["0", "no request fits"];
      return make("td", { class: "kv-no", "data-value": 0, title: reason }, word);
    }
    const step = kvKernel.words.request_steps.filter((edge) => users >= edge).length;
    const tight = verdict === "tight";
    return make("td", {
      class: `kv-u${step}${tight ? " kv-tight" : ""}`,
      "data-value": users,
      title: tight && "tight",
    }, count(users));
  }

  function draw(tag, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
    node.append(...children);
    return node;
  }

  /* --- state in the URL ------------------------------------------------------------------------- */

  /* Whether an address's pair says in which unit sizes are shown, on any page. */
  const isUnit = (key, value) => key === "unit" && ["GiB", "GB"].includes(value);

  /* known: key -> array of allowed values, or null for free text; many: keys that may be said several times, of others
     the first counts. Returns what was understood and what was not. */
  function readState(known, many = []) {
    const state = {}, ignored = [];
    for (const [key, value] of new URLSearchParams(location.search)) {
      if (!(key in known)) {
        if (key !== "h" && !isUnit(key, value)) ignored.push(`${key}=${value}`);
        continue;
      }
      if (value === "") continue;
      const again = state[key] && !many.includes(key) && state[key][0] !== value;
      if (again || (known[key] !== null && !known[key].includes(value))) {
        ignored.push(`${key}=${value}`);
        continue;
      }
      (state[key] ||= []).push(value);
    }
    return { state, ignored };
  }

  function writeState(state, replace) {
    const search = new URLSearchParams();
    for (const [key, values] of Object.entries(state)) {
      for (const value of [].concat(values ?? [])) if (value !== "") search.append(key, value);
    }
    const text = search.toString().replace(/%20/g, "+").replace(/%2F/gi, "/").replace(/%2C/gi, ",");
    moveTo(text ? `?${text}` : "", replace);
  }

  /* Put a state into the address of this page, as a step back or in place of what is there. */
  function moveTo(search, replace = false) {
    if (search === location.search) return;
    history[replace ? "replaceState" : "pushState"](
      history.state,
      "",
      location.pathname + search + location.hash,
    );
  }

  function ignoredNote(ignored) {
    if (!ignored.length) return null;
    const [, machine] = /^gpus?=([\w.-]+(?:[ +][\w.*-]+)+)$/m.exec(ignored.join("\n")) || [];
    const unequal = machine
      ? ` For unequal GPUs of one machine, run: kvreport size MODEL --gpu ${
        machine.replace(/ /g, "+")
      } --concurrent 8 --context 8K`
      : "";
    // The answer of another model or GPU stands on the page.
    const wrong = ignored.some((text) => /^(gpus?|models?)=[^(]*$/.test(text));
    return make(
      wrong ? "strong" : "span",
      { class: wrong ? "kv-ignored kv-wrong" : "kv-ignored" },
      ` Ignored, not known here: ${ignored.join(", ")}.${unequal}`,
    );
  }

  function debounce(call, wait) {
    let timer;
    return (...given) => {
      clearTimeout(timer);
      timer = setTimeout(() => call(...given), wait);
    };
  }

  /* The keys of the search work before the theme's script is there: what is typed next goes to its field. */
  addEventListener("keydown", (event) => {
    const field = $(".md-search__input"), focused = document.activeElement;
    if (!field || !["/", "s", "f"].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    if (focused?.matches("input, textarea, select, [contenteditable]")) return;
    event.preventDefault();
    field.focus();
  });
  /* The button that opens the search puts the cursor into its field, too: a second press is one too many. */
  addEventListener("change", (event) => {
    if ($("#__search:checked") === event.target) $(".md-search__input")?.focus();
  });

  /* A part of an address as text; as it stands where it is not well formed: an address is anybody's. */
  function decoded(part) {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  }

  /* When the reader has begun to do something; of `wake`, or has been here for a while. */
  let begins = null, awake = null;
  function act() {
    begins ||= new Promise((done) => {
      const events = ["pointermove", "pointerdown", "keydown", "scroll", "touchstart", "focusin", "input"];
      const ready = () => {
        events.forEach((name) => removeEventListener(name, ready));
        done();
      };
      events.forEach((name) => addEventListener(name, ready, { passive: true, once: true }));
    });
    return begins;
  }
  /* A field is a link until its script is there: a first tap waits for the field, and follows the link if none comes. */
  addEventListener("click", (event) => {
    const link = /** @type {any} */ (event.target).closest?.("a[data-kv-picker]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    const seek = (left) => {
      const field = document.getElementById(link.dataset.kvId);
      if (field) field.focus();
      else if (left) setTimeout(seek, 100, left - 1);
      else location.href = link.href;
    };
    seek(80);
  }, true);
  const wake = () => awake ||= Promise.race([act(), new Promise((done) => setTimeout(done, 6000))]);

  /* What a field of a form was printed with. */
  const printed = (field) =>
    field.options
      ? (Array.from(field.options).find((one) => one.defaultSelected) || field.options[0]).value
      : field.defaultValue;

  /* The field that a reader is typing into, of the whole page and from before a page's own script is there. What is
     typed is the reader's until it is a change. */
  let typed = null;
  const begun = /** @type {any} */ (document.activeElement);
  if (begun?.matches("input, textarea") && begun.value !== printed(begun)) typed = begun;
  addEventListener("input", (event) => typed = event.target, true);
  addEventListener("change", () => typed = null, true);

  /* Write a field, unless its reader is typing into it: no script and no answer that comes late takes a key away. */
  function put(field, value) {
    if (field === typed && field === document.activeElement) return false;
    if (field.value !== value) field.value = value;
    return true;
  }

  /* The fields that a reader changed before the page could answer: in the printed form, before its script was there,
     and while its numbers are fetched. Returns what ends the watch and gives their names. */
  function changedEarly(form) {
    const own = "select, input:not([role=combobox], [type=file])";
    const fields = location.search ? [] : $$(own, form);
    const names = new Set(fields.filter((one) => one.value !== printed(one)).map((one) => one.name));
    const heard = (event) => {
      if (event.target.matches(own)) names.add(event.target.name);
    };
    form.addEventListener("change", heard);
    return () => {
      form.removeEventListener("change", heard);
      return [...names].filter(Boolean);
    };
  }

  /* What of a page is an answer to its address. */
  const ANSWER = "[data-kv-slot]:not([hidden]), #users-table, .kv-groups, [data-kv-live], [data-kv-case], " +
    "[data-kv-sized], [data-kv-answer]";
  const PATIENCE_MS = 150;
  let answered = null;

  /* Mark an answer as that of another question until the new one is there: dimmed at once; where it takes longer, a word
     stands in its place. */
  function busy(now = true) {
    if (now === Boolean(answered)) return;
    if (!now) return answered();
    const all = $$(ANSWER, $("main") || document.body);
    const parts = all.filter((part) => !part.parentElement.closest(ANSWER));
    const said = make("span", { class: "kv-computing", role: "status" }, "Computing…");
    const inText = $("[data-kv-reader]") && $("[data-kv-told]");
    const late = setTimeout(() => {
      if (inText) inText.append(said);
      else parts[0]?.before(said);
      for (const part of parts) part.classList.add("kv-old");
    }, PATIENCE_MS);
    for (const part of parts) part.setAttribute("aria-busy", "true");
    answered = () => {
      answered = null;
      clearTimeout(late);
      said.remove();
      for (const part of parts) {
        part.removeAttribute("aria-busy");
        part.classList.remove("kv-old");
      }
    };
  }

  /* No answer to the address can be made: what is printed is one to another, and the page says so. */
  function unloaded() {
    busy(false);
    const form = $(STATED);
    if (!form || $("[data-kv-unloaded]")) return;
    form.after(make("p", { class: "kv-fault", role: "alert", "data-kv-unloaded": "" }, UNLOADED));
  }
  const UNLOADED =
    "The numbers for this address could not be loaded. The page shows its printed example. Reload to try again.";

  const COPIED = 4000; /* milliseconds for which a button says so */

  /* Put text on the clipboard, and say so on the button that was pressed. */
  function copy(text, button) {
    const said = (words) => {
      button.dataset.kvLabel ||= button.textContent;
      button.textContent = words;
      setTimeout(() => {
        button.textContent = button.dataset.kvLabel;
      }, COPIED);
    };
    return navigator.clipboard.writeText(text).then(
      () => said("Copied"),
      () => said("Copying is not allowed here"),
    );
  }

  /* Give the reader a file. */
  function save(content, type, name) {
    const url = URL.createObjectURL(new Blob([content], { type }));
    const link = make("a", { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 60_000); // a busy browser reads it late
  }

  /* Let the browser draw and answer before the next piece of work, and a press become a click: what is drawn again
     between the two loses it. */
  let pressed = 0;
  addEventListener("pointerdown", () => {
    pressed = performance.now();
  }, { capture: true, passive: true });
  for (const name of ["pointerup", "pointercancel"]) {
    addEventListener(name, () => setTimeout(() => pressed = 0, 50), { capture: true, passive: true });
  }
  const pause = async () => {
    if (globalThis.scheduler?.yield) await scheduler.yield();
    else await new Promise((done) => setTimeout(done));
    while (pressed && performance.now() - pressed < 2000) await new Promise((done) => setTimeout(done, 50));
  };

  /* The value of a generator that is gone through in slices, with pauses between them; null once it is not wanted any
     more. */
  async function inSlices(steps, wanted) {
    let step = steps.next(), since = performance.now();
    while (!step.done) {
      if (performance.now() - since > SLICE_MS) {
        await pause();
        if (!wanted()) return null;
        since = performance.now();
      }
      step = steps.next();
    }
    return step.value;
  }
  const SLICE_MS = 10; // a phone takes four times as long, and must answer within 50

  /* Whether a text has every word of a query: a memory size is one word, in GB or GiB, and a number begins where one does,
     so that 8GB is not found in 48GB. */
  const matches = (text, query) =>
    query.toLowerCase().replace(/(\d+)\s*gi?b\b/g, "$1gb").split(/\s+/).filter(Boolean).every((word) =>
      /^\d/.test(word) ? new RegExp(`(?<!\\d)${word.replace(/\W/g, "\\$&")}`).test(text) : text.includes(word)
    );

  /* --- GiB or GB -------------------------------------------------------------------------------------------- */

  let unit = "GiB";

  /* Give each table with sizes its switch, and show its sizes in the unit that was chosen. */
  function units(/** @type {ParentNode} */ root = document) {
    const chosen = new URLSearchParams(location.search).get("unit") || stored("kv-unit");
    const tables = root instanceof Element && root.matches(".kv-table") ? [root] : $$(".kv-table", root);
    for (const table of tables) {
      const caption = $("caption", table);
      if (!$(".kv-gib", table) || !caption || $(".kv-units", caption)) continue;
      const button = make("button", { type: "button", class: "kv-chip kv-units" });
      button.addEventListener("click", () => {
        setUnit(other());
        try {
          localStorage.setItem("kv-unit", unit);
        } catch { /* a private window keeps nothing */ }
      });
      caption.append(" ", button);
    }
    setUnit(chosen === "GB" ? "GB" : "GiB", root);
  }

  const other = () => (unit === "GiB" ? "GB" : "GiB");

  function setUnit(next, /** @type {ParentNode} */ root = document) {
    unit = next;
    const scale = unit === "GB" ? 1e9 : GIB;
    for (const cell of $$(".kv-size[data-value]", root)) {
      if ((cell.dataset.kvUnit || "GiB") === unit) continue;
      const bytes = Number(cell.dataset.value);
      if (bytes < 0) continue;
      cell.dataset.kvUnit = unit;
      cell.textContent = fixed(bytes / scale, (cell.textContent.split(".")[1] || "").length);
    }
    for (const label of $$(".kv-gib", root)) label.textContent = unit;
    for (const button of $$(".kv-units", root)) button.textContent = `Show ${other()}`;
  }

  function stored(key) {
    try {
      return localStorage.getItem(key);
    } catch {
      return null;
    }
  }

  /* --- charts ---------------------------------------------------------------------------------------------------- */

  /* The drawing is complete without a script. The library that makes it answer is large and comes when a reader
     touches the chart: with a pointer, a finger or the keyboard. */
  function charts() {
    const found = $$(".kv-chart").filter((chart) => $("template.kv-spec", chart));
    const touches = ["pointerenter", "pointerdown", "focusin"];
    const wake = (event) => {
      const chart = event.currentTarget;
      touches.forEach((name) => chart.removeEventListener(name, wake));
      script("vega.js").then(() => enliven(chart)).catch(() => {/* the drawing stays */});
    };
    for (const chart of found) {
      touches.forEach((name) => chart.addEventListener(name, wake, { passive: true }));
    }
    return { release: () => found.forEach((chart) => chart.kvView?.finalize()) };
  }

  async function enliven(chart, given) {
    if (!chart.isConnected || chart.kvView) return;
    const spec = given || JSON.parse($("template.kv-spec", chart).content.textContent);
    const drawn = $("svg", chart);
    const margin = drawn ? drawn.viewBox.baseVal.width - (spec.width || 700) : 70;
    spec.width = Math.max(480, Math.floor(chart.clientWidth - margin - 4));
    const host = make("div", { class: "kv-live" });
    host.style.visibility = "hidden";
    host.style.position = "absolute";
    chart.append(host);
    // Neither expressions nor styles are made from text: the page's policy would refuse both.
    const result = await vegaEmbed(host, spec, {
      renderer: "svg",
      actions: false,
      ast: true,
      defaultStyle: false,
      tooltip: { theme: "custom", disableDefaultStyle: true },
    });
    chart.kvView = result.view;
    host.removeAttribute("style");
    drawn?.remove();
    chart.dataset.kvLive = "true";
  }

  /* --- tables ------------------------------------------------------------------------------------- */

  /* A table scrolls with the page, under a head that stays. One that is wider than its place is put into a scroller of
     its own; in there nothing can stick to the page, so its head is moved along. */
  /* Drawings, and the box that the theme puts around a table of a page that is written by hand. */
  const SCROLLED = "figure.kv-figure, .md-typeset__scrollwrap";
  /* Such a table before the theme puts its box around it: it scrolls by itself. */
  const BARE = ".md-typeset > table:not([class])";

  function tables() {
    const seen = new Set(), wide = new Set();
    let asked = false, live = true;
    const top = () => Math.max(0, $(".md-header")?.getBoundingClientRect().bottom ?? 0);
    const overflows = (node) => node.scrollWidth > node.clientWidth + 1;
    const sizes = new ResizeObserver((entries) => {
      for (const { target } of entries) {
        // What is wider than a phone is scrolled by keys, too. Read first: below, classes change.
        if (
          target instanceof HTMLElement && target.matches(SCROLLED) && overflows(target)
        ) target.tabIndex = 0;
        if (target.matches("table[data-kv-bare]") && !overflows(target)) unstop(target);
      }
      // Every width is read before the first class changes: a change between two of them styles the page once more.
      const boxes = new Set(entries.map(({ target }) => target.closest(".kv-scroll")).filter(Boolean));
      const over = Array.from(boxes, (box) => $("table", box)?.scrollWidth > box.clientWidth + 1);
      Array.from(boxes).forEach((box, place) => fit(box, over[place]));
      follow();
    });

    /* Nothing to scroll: no stop for the keyboard, once a reader who is there has left, whose place would be lost. */
    function unstop(node) {
      if (node !== document.activeElement) node.removeAttribute("tabindex");
      else node.addEventListener("blur", () => overflows(node) || unstop(node), { once: true });
    }

    function fit(box, over) {
      if (box.classList.contains("kv-wide") === over && box.classList.contains("kv-fits") !== over) return;
      box.classList.toggle("kv-wide", over);
      box.classList.toggle("kv-fits", !over);
      const hint = box.previousElementSibling?.matches(".kv-sideways") ? box.previousElementSibling : null;
      if (over) {
        wide.add(box);
        box.setAttribute("tabindex", "0");
        if (!hint) {
          box.before(
            make("p", { class: "kv-sideways", "aria-hidden": "true" }, "Scroll sideways for more columns →"),
          );
        }
      } else {
        wide.delete(box);
        unstop(box);
        hint?.remove();
        const head = $("thead", box);
        if (head) head.style.transform = "";
      }
    }

    function follow() {
      asked = false;
      const edge = top();
      for (const box of wide) {
        const head = $("thead", box), place = box.getBoundingClientRect();
        if (!head || place.bottom < edge || place.top > innerHeight) continue;
        const shift = Number(head.dataset.kvShift || 0);
        const from = head.getBoundingClientRect().top - shift; // where it stands by itself
        const room = place.bottom - from - 2 * head.offsetHeight;
        const moved = Math.max(0, Math.round(Math.min(room, edge - from)));
        head.dataset.kvShift = String(moved);
        head.style.transform = moved ? `translateY(${moved}px)` : "";
      }
    }

    // To ask how wide something is lays it out: what is far below the window, which no one sees yet, is left alone.
    const near = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        sizes.observe(target);
        if ($("table", target)) sizes.observe($("table", target));
      }
    }, { rootMargin: "100% 0px" });

    const find = () => {
      for (const box of $$(".kv-scroll")) {
        if (seen.has(box)) continue;
        seen.add(box);
        box.tabIndex = 0; // a stop for the keyboard, until it is seen to fit
        near.observe(box);
      }
      for (const table of $$(BARE)) {
        if (seen.has(table)) continue;
        seen.add(table);
        table.dataset.kvBare = "";
        table.tabIndex = 0; // as above
        near.observe(table);
      }
      for (const code of $$("pre > code, .kv-code pre")) code.tabIndex = 0;
      for (const figure of $$(SCROLLED)) {
        // Before the first key of a reader who goes from stop to stop, and not before the page has been seen.
        if (!seen.has(figure)) wake().then(() => live && sizes.observe(figure));
        seen.add(figure);
      }
      for (const tools of $$("nav.md-code__nav:not([role])")) tools.setAttribute("role", "none"); // the theme's
      for (const box of seen) {
        if (box.isConnected) continue;
        seen.delete(box);
        wide.delete(box);
      }
    };
    const scrolled = () => {
      if (!asked && wide.size) requestAnimationFrame(follow);
      asked = wide.size > 0;
    };
    const changes = new MutationObserver(find);
    changes.observe($("main") || document.body, { childList: true, subtree: true });
    addEventListener("scroll", scrolled, { passive: true });
    if ($("main")) sizes.observe($("main")); // what grows above a table moves it
    find();
    return {
      release: () => {
        live = false;
        changes.disconnect();
        near.disconnect();
        sizes.disconnect();
        removeEventListener("scroll", scrolled);
      },
    };
  }

  /* All rows of a table, those that are not drawn yet with the others. */
  const rowsOf = (/** @type {HTMLTableElement} */ table) =>
    Array.from(table.tBodies).flatMap((body) => Array.from(body.rows));

  /* Give a table other rows: of a long one the first, and the rest behind its switch. */
  function putRows(/** @type {HTMLTableElement} */ table, rows) {
    const [first, rest] = table.tBodies;
    const more = /** @type {HTMLElement} */ (table.nextElementSibling);
    if (!rest) return first.replaceChildren(...rows);
    const number = Number(more.dataset.kvFirst);
    first.replaceChildren(...rows.slice(0, number));
    rest.replaceChildren(...rows.slice(number));
    more.toggleAttribute("hidden", rows.length <= number);
    $("b", more).textContent = count(rows.length);
  }

  /* The rows of a table that its page leaves out, from the plain page that has all of them. */
  const pending = new WeakMap();
  function whole(/** @type {HTMLTableElement | null} */ table) {
    const rest = table?.tBodies[1], name = rest?.dataset.kvRows;
    if (!name) return Promise.resolve();
    if (!pending.has(table)) {
      const read = async () => {
        const answer = await fetch(new URL(name, location.href));
        if (!answer.ok) throw new Error(String(answer.status));
        putRest(rest, await answer.text());
      };
      const done = () => pending.delete(table); // a table that is put back as printed reads them again
      pending.set(table, read().catch(() => {/* the link to the plain page stays */}).then(done));
    }
    return pending.get(table);
  }

  /* The further rows of a table, from its plain page; the printer may have read them before. */
  function putRest(rest, html) {
    if (!rest.dataset.kvRows) return;
    delete rest.dataset.kvRows;
    rest.append(...$$(".kv-rest > tr", new DOMParser().parseFromString(html, "text/html")));
    units(rest.closest("table"));
  }

  /* A search in the page finds rows that are not drawn yet, and an address leads to them. */
  function longTables() {
    const all = $$(".kv-rest").map((rest) => [rest, rest.closest("table").nextElementSibling]);
    const open = (/** @type {HTMLDetailsElement} */ more) => {
      more.open = true;
    };
    const name = () => decoded(location.hash.slice(1));
    const led = () => {
      const lost = name() && !document.getElementById(name());
      for (const [rest, more] of all) {
        const table = rest.closest("table");
        (lost ? whole(table) : Promise.resolve()).then(() => {
          const row = name() && document.getElementById(name());
          if (!row || !rest.contains(row)) return;
          open(more);
          if (lost) location.replace(location.href); // the style of a target is given on the way to it
        });
      }
    };
    for (const [rest, more] of all) {
      rest.setAttribute("hidden", "until-found");
      rest.addEventListener("beforematch", () => open(more));
      if (rest.dataset.kvRows) act().then(() => whole(rest.closest("table")));
    }
    addEventListener("hashchange", led);
    led();
    return { release: () => removeEventListener("hashchange", led) };
  }

  /* --- pages ---------------------------------------------------------------------------------------------------------- */

  /* What a page has, the scripts that it takes, and who starts it. They are fetched with the first
     page that needs them. */
  const scriptsOf = (names) => names.split(" ").map((name) => `kv-${name}.js`);
  const ANSWERS = scriptsOf("capacity state chart result form rows");
  const STATE = ["kv-core-page.js", ...ANSWERS, ...scriptsOf("parts show answers pages")];
  /* Pages that are whole as printed: their scripts come when the reader begins to do something. */
  const LATE = ["stateful", "askBox", "gpuPage", "plots", "reader", "textFilter", "sortable"];
  /* Of these, what some keys of the address ask for; others are wanted by any. */
  const ASKED_BY = { askBox: ["ask"], textFilter: ["name", "context"], sortable: ["sort"] };

  /** @type {[string, string, string[]][]} */
  const PARTS = [
    ["[data-kv-index]", "index", ["kv-index.js"]],
    ["[data-kv-filter]", "textFilter", ["kv-index.js"]],
    ["[data-kv-list]", "listFilter", ["kv-index.js"]],
    ["[data-kv-sortable]", "sortable", ["kv-index.js"]],
    ["[data-kv-state]", "stateful", STATE],
    ["[data-kv-ask]", "askBox", [...STATE, ...scriptsOf("picker ask ask-box")]],
    ["[data-kv-gpupage]", "gpuPage", ["kv-core-lists.js", ...ANSWERS, "kv-matrix.js", "kv-gpu.js"]],
    ["[data-kv-plots]", "plots", scriptsOf("core-page chart")],
    ["[data-kv-reader]", "reader", scriptsOf("kernel lessons capacity state picker question")],
    ["[data-kv-explore]", "explore", ["kv-core.js", "kv-capacity.js", "kv-matrix.js", "kv-explore.js"]],
    ["[data-kv-sizer]", "sizer", [
      "kv-core-sizer.js",
      "kv-capacity.js",
      "kv-state.js",
      "kv-picker.js",
      "kv-parts.js",
      "kv-sizing.js",
      "kv-sizer.js",
    ]],
    ["[data-kv-traffic]", "traffic", [
      "kv-kernel.js",
      "kv-capacity.js",
      "kv-picker.js",
      "kv-parts.js",
      "kv-traffic.js",
      "kv-flight.js",
      "kv-replay.js",
    ]],
    ["[data-kv-log]", "log", [
      ...scriptsOf("kernel capacity state picker parts"),
      "kv-loglines.js",
      "kv-log-local.js",
      "kv-library.js",
      "kv-log.js",
    ]],
    ["[data-kv-claims]", "claims", scriptsOf("parts library claims")],
    ["[data-kv-yours]", "yours", ["kv-kernel.js", "kv-parts.js", "kv-library.js", "kv-yours.js"]],
    [
      "[data-kv-compare]",
      "compare",
      scriptsOf("core-lists capacity state chart result picker parts compare"),
    ],
    ["[data-kv-guess]", "guess", ["kv-book.js"]],
    ["[data-kv-quiz]", "quiz", ["kv-book.js"]],
    ["[data-kv-choice]", "choice", ["kv-book.js"]],
    ["[data-kv-exercise]", "exercise", ["kv-book.js"]],
    ["[data-kv-instrument]", "instrument", ["kv-kernel.js", "kv-lessons.js", "kv-book-instrument.js"]],
  ];

  /* Parts that answer what the address asks. */
  const STATED =
    "[data-kv-state], [data-kv-gpupage], [data-kv-reader], [data-kv-sizer], [data-kv-compare], [data-kv-explore]";

  /* What works without other files. Browsers do not let a page that is opened as a file read any. */
  const ALONE = ["index", "textFilter", "sortable", "guess", "quiz", "choice", "exercise", "instrument"];
  const AS_FILE =
    "This page was opened as a file, and browsers do not let a file read the numbers next to it. The text is complete; " +
    "forms, filters and search need a server: run “python -m http.server” in the site’s folder and open the address that it prints.";

  function asFile(marks) {
    const place = $(marks.join());
    if (!place) return;
    place.before(make("p", { class: "kv-fault", role: "note" }, AS_FILE));
    for (const said of $$(".kv-said, .kv-js form, form.kv-js")) said.hidden = true;
  }

  /* An address that does not exist: offer a search for its last words. */
  function lost(place) {
    const asked = decoded(location.pathname).split("/").filter(Boolean).pop() || "";
    const words = asked.replace(/\.(html|md)$/, "").replace(/[^\w.]+|_/g, " ").trim();
    const home = $("a", place);
    if (!words || !home) return;
    const link = make(
      "a",
      { href: `${home.getAttribute("href")}?q=${encodeURIComponent(words)}` },
      `Search for “${words}”`,
    );
    place.append(" · ", link);
  }

  /* A step that fails stops no other: it is told to the console, and the page works on. */
  function attempt(step) {
    try {
      step();
    } catch (error) {
      reportError(error);
    }
  }

  let parts = [];
  /* How old a fact is by the reader's clock: the page states the day alone, so that no build depends on today. */
  function ages() {
    for (const time of /** @type {HTMLTimeElement[]} */ ($$("time[data-kv-age]:not([title])"))) {
      time.title = time.dateTime;
      const days = Math.floor((Date.now() - Date.parse(time.dateTime)) / 864e5);
      if (days >= 0) time.append(` (${plural(days, "day|days")})`);
    }
  }

  function start() {
    const ended = parts;
    const here = (parts = []);
    const steps = [
      ...ended.map((part) => () => part?.release?.()),
      () => $$("[data-kv-lost]").forEach(lost),
      () => document.documentElement.classList.remove("no-js"),
      () => document.documentElement.classList.add("js"),
      ...[charts, tables, longTables].map((part) => () => parts.push(part())),
      units,
      ages,
      addresses,
    ];
    steps.forEach(attempt);
    const idle = globalThis.requestIdleCallback || ((call) => setTimeout(call, 200));
    if ($('meta[name="kv-release"]') && $("main")) {
      // What the page answers goes first; the tools of charts and tables come when the reader moves, or a little later.
      const later = new Promise((go) => setTimeout(go, 2000));
      idle(() =>
        Promise.race([wake(), later]).then(() => script("kv-share.js")).then(() =>
          parts === here && parts.push(kvreport.share($("main")))
        ).catch(
          () => {},
        )
      );
    }
    const filed = location.protocol === "file:";
    const unread = PARTS.filter(([, name]) => filed && !ALONE.includes(name)).map(([mark]) => mark);
    if (filed) asFile(unread);
    const asked = new URLSearchParams(location.search);
    busy(false);
    if (!filed && location.search && $(STATED)) busy();
    for (const [mark, name, files] of PARTS) {
      const roots = unread.includes(mark) ? [] : $$(mark);
      if (!roots.length) continue;
      // A context is of the form where a page has one.
      const own = (key) => asked.has(key) && (key !== "context" || !$("[data-kv-gpupage]"));
      const later = LATE.includes(name) && !(name in ASKED_BY ? ASKED_BY[name].some(own) : location.search);
      (later ? wake() : Promise.resolve()).then(() => Promise.all(files.map(script))).then(() => {
        if (parts !== here) return; // another page is shown by now
        for (const root of roots) attempt(() => parts.push(kvreport[name](root)));
      }, () => {
        if (location.search && $(STATED) === roots[0]) unloaded(); // else the page is whole without it
      });
    }
  }

  addEventListener("popstate", () => parts.forEach((part) => part?.restore?.()));
  /* A question that is sent before its script is there goes with the address, so that what the form says is kept. */
  addEventListener("submit", (event) => {
    const form = /** @type {HTMLFormElement} */ (event.target);
    if (event.defaultPrevented || !form.matches("[data-kv-ask]")) return;
    event.preventDefault();
    const asked = new URLSearchParams(location.search);
    asked.set("ask", $("input", form).value);
    location.search = `${asked}`;
  });
  /* Paper has whole tables, also of a page that nobody has touched: the printer waits while their rows are read.
     It has the page's address, and the release that its numbers are of. */
  addEventListener("beforeprint", () => {
    for (const details of $$("details.kv-data")) details.open = true;
    for (const rest of location.protocol === "file:" ? [] : $$(".kv-rest[data-kv-rows]")) {
      const request = new XMLHttpRequest();
      request.open("GET", rest.dataset.kvRows, false);
      try {
        request.send();
        if (request.status === 200) putRest(rest, request.responseText);
      } catch { /* the page says how many rows are on paper */ }
    }
    const place = $("main article") || $("main"), release = $('meta[name="kv-release"]')?.content;
    if (!place) return;
    const line = $(".kv-printed") || place.appendChild(make("p", { class: "kv-printed" }));
    line.textContent = address() + (release ? ` · data release ${release}` : "");
  });

  /* The address to cite, with the state that is shown: the published one where the build knows it, else the one that the
     reader opened. */
  function address() {
    const told = $('link[rel="canonical"]')?.getAttribute("href") || "";
    const known = told.startsWith("https://") && !told.startsWith(PLACEHOLDER);
    return (known ? told : location.href.split(/[?#]/)[0]) + location.search + location.hash;
  }

  const PLACEHOLDER = "https://YOUR-SITE/";

  /* A build that knows no address writes a placeholder: the reader copies the one that they opened. */
  function placed(text) {
    const root = new URL("..", ASSETS).href;
    return text.replaceAll(PLACEHOLDER, root)
      .replaceAll(encodeURIComponent(PLACEHOLDER), encodeURIComponent(root));
  }

  function addresses() {
    if (location.protocol === "file:") return;
    for (const code of $$("main code")) {
      if (!/YOUR-SITE/.test(code.textContent)) continue;
      const words = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
      while (words.nextNode()) {
        const text = /** @type {Text} */ (words.currentNode);
        text.data = placed(text.data);
      }
    }
  }

  window.kvreport = {
    landed: location.pathname,
    root: new URL("..", ASSETS).href,
    $,
    $$,
    make,
    draw,
    count,
    fixed,
    gib,
    missing,
    plural,
    verb,
    tokens,
    parametersText,
    onDevices,
    focusIn,
    load,
    facts,
    script,
    usersCell,
    readState,
    writeState,
    moveTo,
    ignoredNote,
    copy,
    address,
    placed,
    save,
    debounce,
    matches,
    rowsOf,
    putRows,
    whole,
    pause,
    inSlices,
    units,
    enliven,
    wake,
    printed,
    put,
    changedEarly,
    busy,
    unloaded,
    start,
  };

  const later = /** @type {HTMLTemplateElement | null} */ ($("template[data-kv-theme]"));
  // Opened as a file the theme never says that the page is there.
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();

  /* The theme makes every address of a page absolute, and compares the page's head with that of the next one. To write
     the address of a style sheet is to load the sheet and style the page a second time: it only reads as absolute. */
  function absolute(/** @type {HTMLLinkElement} */ node) {
    const { href } = node;
    const written = /** @type {HTMLLinkElement} */ (node.cloneNode());
    written.href = href;
    const { outerHTML } = written;
    Object.defineProperties(node, {
      href: { get: () => href, set: () => {} },
      outerHTML: { get: () => outerHTML },
    });
  }

  /* The theme's script is large and comes with the reader's first move: a page is read, and its links work, without it.
     From then on it says which page is shown. */
  function theme() {
    let first = true;
    window.document$?.subscribe(() => {
      if (!first) start();
      first = false;
    });
  }
  if (later) {
    const source = new URL(later.dataset.kvTheme, location.href).href;
    for (const node of $$("head > link[rel=stylesheet]")) absolute(node);
    const ready = () => {
      theme();
      document.dispatchEvent(new Event("DOMContentLoaded")); // what the theme begins with
    };
    const searched = new URLSearchParams(location.search).has("q"); // the theme opens the search with these words
    (searched ? Promise.resolve() : wake()).then(() =>
      document.body.append(make("script", { src: source, onload: ready }))
    );
  } else if (location.protocol !== "file:") theme();
})();
