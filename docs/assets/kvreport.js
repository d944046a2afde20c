/* What our pages do beyond being read: sort and filter tables, keep what you see in the URL, switch
   units, answer other questions than the printed one, and bring charts to life when they come into
   view. Every page is whole without this file. No dependency; works with and without the theme's
   instant navigation. */
(function () {
  "use strict";

  const ASSETS = new URL(".", document.currentScript.src).href;
  const REASONS = {
    weights_exceed_memory: ["weights", "the weights alone exceed the memory"],
    cache_exceeds_pool: ["cache", "not even one request of this length fits what the weights leave"],
    context_exceeds_model: ["limit", "longer than the model supports"],
  };
  const STEPS = [1, 3, 10, 32, 100, 316, 1000, 3162];
  const GIB = 2 ** 30;

  /* --- small tools ---------------------------------------------------------------------------- */

  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => Array.from(root.querySelectorAll(selector));

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

  const count = (n) => n.toLocaleString("en-US");
  const gib = (bytes, digits = 2) => (bytes / GIB).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const plural = (n, word) => `${count(n)} ${n === 1 ? word.replace(/s$/, "") : word}`;

  function tokens(n) {
    if (n >= 1 << 20 && n % (1 << 20) === 0) return `${n / (1 << 20)}M`;
    if (n >= 1024 && n % 1024 === 0) return `${n / 1024}K`;
    return count(n);
  }

  function roughTokens(n) {
    if (n >= 1 << 20) return `${(n / (1 << 20)).toFixed(1)}M`;
    return n >= 4096 ? `${Math.floor(n / 1024)}K` : count(n);
  }

  const onDevices = (n, name) => (n === 1 ? `one ${name}` : `${n} × ${name}`);

  const fetched = new Map();
  function load(url) {
    const key = new URL(url, location.href).href;
    if (!fetched.has(key)) {
      fetched.set(key, fetch(key).then((answer) => {
        if (!answer.ok) throw new Error(`${answer.status} for ${key}`);
        return answer.json();
      }));
      fetched.get(key).catch(() => fetched.delete(key));
    }
    return fetched.get(key);
  }

  const scripts = new Map();
  function script(name) {
    if (!scripts.has(name)) {
      scripts.set(name, new Promise((done, failed) => {
        document.head.append(make("script", { src: ASSETS + name, onload: done, onerror: () => failed(new Error(name)) }));
      }));
    }
    return scripts.get(name);
  }

  function usersCell(users, verdict) {
    if (verdict === "context_exceeds_model" || users < 1) {
      const [word, reason] = REASONS[verdict] || ["0", "no request fits"];
      return make("td", { class: "kv-no", "data-value": 0, title: reason }, word);
    }
    const step = STEPS.filter((edge) => users >= edge).length;
    const tight = verdict === "tight";
    return make("td", { class: `kv-u${step}${tight ? " kv-tight" : ""}`, "data-value": users, title: tight && "tight" }, count(users));
  }

  /* --- state in the URL ------------------------------------------------------------------------- */

  /* known: key -> array of allowed values, or null for free text. Returns what was understood and
     what was not. */
  function readState(known) {
    const state = {}, ignored = [];
    for (const [key, value] of new URLSearchParams(location.search)) {
      if (!(key in known)) { if (key !== "unit" && key !== "h") ignored.push(`${key}=${value}`); continue; }
      if (value === "") continue;
      if (known[key] !== null && !known[key].includes(value)) { ignored.push(`${key}=${value}`); continue; }
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
    const address = location.pathname + (text ? `?${text}` : "") + location.hash;
    if (address === location.pathname + location.search + location.hash) return;
    history[replace ? "replaceState" : "pushState"](history.state, "", address);
  }

  function ignoredNote(ignored) {
    return ignored.length ? make("span", { class: "kv-ignored" }, ` Ignored, not known here: ${ignored.join(", ")}.`) : null;
  }

  function debounce(call, wait) {
    let timer;
    return (...given) => { clearTimeout(timer); timer = setTimeout(() => call(...given), wait); };
  }

  const matches = (text, query) => query.toLowerCase().split(/\s+/).filter(Boolean).every((word) => text.includes(word));

  /* --- sorting ------------------------------------------------------------------------------------ */

  function sortable(table, changed) {
    const heads = $$("thead th", table);
    heads.forEach((head, index) => {
      if ($(".kv-sort", head)) return;
      const button = make("button", { type: "button", class: "kv-sort" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const numeric = head.classList.contains("kv-num");
        const now = head.getAttribute("aria-sort");
        const falling = now ? now === "ascending" : numeric;
        sortBy(table, index, falling);
        changed(`${falling ? "-" : ""}${slug(head)}`);
      });
    });
  }

  const slug = (head) => head.textContent.trim().toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");

  function sortBy(table, index, falling) {
    $$("thead th", table).forEach((head, n) => {
      if (n === index) head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const body = table.tBodies[0];
    const keyed = Array.from(body.rows, (row) => {
      const cell = row.cells[index];
      if (!cell || cell.colSpan > 1) return [null, row];
      const value = cell.dataset.value;
      return [value !== undefined ? Number(value) : cell.textContent.trim().toLowerCase(), row];
    });
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
      return falling ? -order : order;
    });
    body.append(...keyed.map(([, row]) => row));
  }

  /* --- indexes: facets, text, sort ---------------------------------------------------------------- */

  function index(tools) {
    const table = document.getElementById(tools.dataset.kvIndex);
    const noun = tools.dataset.kvNoun;
    const rows = Array.from(table.tBodies[0].rows);
    const text = $("input[name=q]", tools), said = $(".kv-said", tools);
    const facets = $$("fieldset", tools).map((field) => ({
      key: field.dataset.facet,
      label: $("legend", field).textContent,
      chips: $$(".kv-chip:not(.kv-more)", field),
      more: $(".kv-more", field),
    }));
    const heads = $$("thead th", table).map(slug);
    const known = { q: null, sort: heads.flatMap((head) => [head, `-${head}`]) };
    for (const facet of facets) known[facet.key] = facet.chips.map((chip) => chip.value);
    let state = {}, ignored = [];

    const passes = (row, without) =>
      (without === "q" || !state.q || matches(row.dataset.search, state.q[0])) &&
      facets.every(({ key }) => key === without || !state[key] || state[key].includes(row.dataset[key]));

    function show() {
      let shown = 0;
      for (const row of rows) {
        row.hidden = !passes(row);
        if (!row.hidden) shown += 1;
      }
      for (const { key, chips, more } of facets) {
        const left = new Map();
        for (const row of rows) if (passes(row, key)) left.set(row.dataset[key], (left.get(row.dataset[key]) || 0) + 1);
        for (const chip of chips) {
          const on = Boolean(state[key]?.includes(chip.value));
          chip.setAttribute("aria-pressed", on);
          $("small", chip).textContent = left.get(chip.value) || 0;
          if (on && chip.hidden) chip.hidden = false;
        }
        if (more && more.getAttribute("aria-expanded") === "true") more.hidden = true;
      }
      if (text.value !== (state.q?.[0] || "")) text.value = state.q?.[0] || "";
      const words = filterWords();
      said.replaceChildren(shown === rows.length && !words.length ? `All ${count(rows.length)} ${noun}.` : `${count(shown)} of ${plural(rows.length, noun)}${words.length ? ": " + words.join("; ") : ""}.`);
      if (!shown) said.append(` ${culprit()}`);
      if (words.length) said.append(" ", make("button", { type: "button", class: "kv-chip", onclick: () => { state = state.sort ? { sort: state.sort } : {}; ignored = []; apply(); } }, "clear"));
      said.append(ignoredNote(ignored) || "");
    }

    function filterWords() {
      const words = state.q ? [`name contains “${state.q[0]}”`] : [];
      for (const { key, label } of facets) if (state[key]) words.push(`${label} ${state[key].join(" or ")}`);
      return words;
    }

    function culprit() {
      const active = ["q", ...facets.map((facet) => facet.key)].filter((key) => state[key]);
      const would = active.map((key) => [key, rows.filter((row) => passes(row, key)).length]).filter(([, n]) => n);
      if (!would.length) return "No single filter empties it; clear them.";
      return would.map(([key, n]) => `Without ${key === "q" ? "the name" : facets.find((f) => f.key === key).label} there would be ${count(n)}.`).join(" ");
    }

    function sortAsAsked() {
      const asked = state.sort?.[0];
      if (!asked) return;
      sortBy(table, heads.indexOf(asked.replace(/^-/, "")), asked.startsWith("-"));
    }

    function apply(replace) { show(); writeState(state, replace); }

    function restore() {
      ({ state, ignored } = readState(known));
      sortAsAsked();
      show();
    }

    const takeText = () => { if (text.value) state.q = [text.value]; else delete state.q; };
    const typed = debounce(() => { takeText(); apply(true); }, 80);
    text.addEventListener("input", typed);
    for (const { key, chips, more } of facets) {
      for (const chip of chips) {
        chip.addEventListener("click", () => {
          takeText(); // what was typed a moment ago counts too
          const now = new Set(state[key] || []);
          if (!now.delete(chip.value)) now.add(chip.value);
          if (now.size) state[key] = [...now]; else delete state[key];
          apply();
        });
      }
      more?.addEventListener("click", () => {
        chips.forEach((chip) => { chip.hidden = false; });
        more.setAttribute("aria-expanded", "true");
        more.hidden = true;
      });
    }
    sortable(table, (asked) => { state.sort = [asked]; writeState(state, true); });
    restore();
    return { restore };
  }

  /* --- a text filter alone (GPU pages) -------------------------------------------------------------- */

  function textFilter(tools) {
    const table = document.getElementById(tools.dataset.kvFilter);
    const rows = Array.from(table.tBodies[0].rows);
    const text = $("input[name=q]", tools);
    const said = tools.nextElementSibling;
    const texts = new Map(rows.map((row) => [row, `${row.cells[0].textContent} ${row.id}`.toLowerCase()]));
    function restore() {
      const { state, ignored } = readState({ q: null });
      text.value = state.q?.[0] || "";
      show();
      said.append(ignoredNote(ignored) || "");
    }
    function show() {
      const query = text.value;
      const shown = rows.filter((row) => !(row.hidden = Boolean(query) && !matches(texts.get(row), query))).length;
      said.textContent = query ? `${count(shown)} of ${count(rows.length)} models: name contains “${query}”.` : "";
    }
    text.addEventListener("input", debounce(() => { show(); writeState({ q: text.value }, true); }, 80));
    restore();
    return { restore };
  }

  /* --- model pages: other formats, sizes, engines ----------------------------------------------------- */

  function configs(site, model, gpu, weights, kv, sizes) {
    return sizes.map((size) => kvCapacity.configure(site, model, gpu, size, weights, kv)).filter(Boolean);
  }

  function serves(config, model, ceiling) {
    const context = Math.min(8192, model.limit);
    const answer = kvCapacity.answer(config, context);
    return ceiling ? answer.ceiling > 0 : answer.users > 0 && ["fits", "tight"].includes(answer.verdict);
  }

  function modelSwitch(tools) {
    const table = document.getElementById("users-table");
    const said = tools.nextElementSibling;
    const fields = Object.fromEntries($$("select, input", tools).map((field) => [field.name, field]));
    const start = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value]));
    const known = { q: null };
    for (const [name, field] of Object.entries(fields)) if (field.options) known[name] = Array.from(field.options, (option) => option.value);
    const printed = table.tBodies[0].cloneNode(true);
    const changed = () => Object.keys(fields).filter((name) => fields[name].value !== start[name]);

    async function show(ignored = []) {
      const differs = changed().filter((name) => name !== "q");
      if (!differs.length) {
        restoreRows();
        said.replaceChildren(...[ignoredNote(ignored)].filter(Boolean));
      } else {
        const base = new URL(tools.dataset.kvSwitch, location.href);
        const [site, model] = await Promise.all([load(new URL("../site.json", base)), load(base)]);
        rewrite(site, model);
        const words = differs.map((name) => `${fields[name].parentElement.firstChild.textContent.trim()} ${fields[name].selectedOptions[0].textContent}`);
        said.replaceChildren(`Now: ${words.join("; ")}. `, make("button", { type: "button", class: "kv-chip", onclick: reset }, "as printed"), ignoredNote(ignored) || "");
      }
      narrow();
    }

    function restoreRows() {
      table.tBodies[0].replaceWith(printed.cloneNode(true));
    }

    function reset() {
      for (const name of Object.keys(fields)) fields[name].value = start[name];
      write();
      show();
    }

    function rewrite(site, model) {
      restoreRows();
      const columns = $$("thead th", table).length - 1;
      const contexts = site.contexts.slice(0, columns - 2);
      const gpus = new Map(site.gpus.map((gpu) => [gpu.id, gpu]));
      const ceiling = fields.engine.value === "ceiling";
      const wanted = fields.tp.value === "fewest" ? site.sizes.map((_, n) => n) : [site.sizes.indexOf(Number(fields.tp.value))];
      for (const row of Array.from(table.tBodies[0].rows)) {
        const gpu = gpus.get(row.id.replace("on-", ""));
        const possible = configs(site, model, gpu, fields.weights.value, fields.kv.value, wanted);
        const config = possible.find((one) => serves(one, model, ceiling)) || (fields.tp.value === "fewest" ? null : possible[0]);
        row.replaceChildren(row.cells[0]);
        if (!config || !config.fitsWeights) row.append(whyNot(possible, columns));
        else row.append(...cells(config, contexts, ceiling));
      }
    }

    function cells(config, contexts, ceiling) {
      const answers = contexts.map((context) => kvCapacity.answer(config, context));
      return [
        make("td", { class: "kv-num", "data-value": config.size }, String(config.size)),
        ...answers.map((answer) => (ceiling ? usersCell(answer.ceiling, answer.ceiling ? "fits" : "cache_exceeds_pool") : usersCell(answer.users, answer.verdict))),
        make("td", { class: "kv-num", "data-value": config.longest, title: `${count(config.longest)} tokens` }, roughTokens(config.longest)),
      ];
    }

    function whyNot(possible, columns) {
      const widest = possible[possible.length - 1];
      let words = "not offered: this split or format does not exist here";
      if (widest && !widest.fitsWeights) words = `weights: ${gib(widest.weights, 1)} GiB on each of ${widest.size}, and one has ${gib(widest.gpu.usable, 1)} GiB`;
      else if (widest) words = `cache: the weights leave no room for one request on each of ${widest.size}`;
      return make("td", { class: "kv-no kv-why", colspan: columns }, words);
    }

    function narrow() {
      const query = fields.q.value;
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        row.hidden = Boolean(query) && !matches(`${row.cells[0].textContent} ${row.id}`.toLowerCase(), query);
        shown += !row.hidden;
      }
      if (query && !shown) said.append(` No accelerator is called “${query}”.`);
    }

    function write(replace) {
      const state = {};
      for (const name of changed()) state[name] = fields[name].value;
      writeState(state, replace);
    }

    function restore() {
      const { state, ignored } = readState(known);
      for (const name of Object.keys(fields)) fields[name].value = state[name]?.[0] || start[name];
      show(ignored);
    }

    for (const [name, field] of Object.entries(fields)) {
      field.addEventListener("input", name === "q" ? debounce(() => { write(true); show(); }, 80) : () => { write(); show(); });
    }
    restore();
    return { restore };
  }

  /* --- the front page's form ----------------------------------------------------------------------------- */

  function ask(form) {
    const box = form.nextElementSibling;
    const printed = Array.from(box.childNodes);
    const fields = Object.fromEntries($$("select", form).map((field) => [field.name, field]));
    const start = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value]));
    const known = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, Array.from(field.options, (option) => option.value)]));

    async function show(ignored = []) {
      const base = new URL(form.dataset.kvAsk, location.href);
      const [site, model] = await Promise.all([load(new URL("site.json", base)), load(new URL(`models/${fields.model.value}.json`, base))]);
      const gpu = site.gpus.find((one) => one.id === fields.gpu.value);
      const context = Number(fields.context.value);
      const asked = Math.min(context, model.limit);
      const possible = configs(site, model, gpu, "released", model.kv, site.sizes.map((_, n) => n));
      const config = possible.find((one) => { const a = kvCapacity.answer(one, asked); return a.users > 0 && ["fits", "tight"].includes(a.verdict); });
      const note = make("p", { class: "kv-note" }, make("a", { href: new URL(`../../models/${model.slug}/#on-${gpu.id}`, base).href }, model.name), " on ", make("a", { href: new URL(`../../gpus/${gpu.id}/`, base).href }, gpu.name), `. ${site.engine.label} with its defaults, weights as released. From formulas, not measured. `, make("a", { href: new URL(`../../sizer/?model=${model.slug}&gpu=${gpu.id}&context=${asked}&prompt=none&output=none`, base).href }, "Size a deployment"), ".", ignoredNote(ignored) || "");
      box.replaceChildren(sentence(site, model, gpu, context, config, possible), note, ...(config ? [memoryBar(config, asked)] : []));
    }

    function sentence(site, model, gpu, context, config, possible) {
      const big = make("p", { class: "kv-big" });
      if (!config) {
        const widest = possible[possible.length - 1];
        const why = !widest ? "it is not offered there" : !widest.fitsWeights ? `its weights take ${gib(widest.weights, 1)} GiB on each of ${widest.size}` : "the weights leave no room for one such request";
        big.append(`${model.name} does not serve ${tokens(context)} on up to ${site.sizes[site.sizes.length - 1]} × ${gpu.short}: ${why}.`);
        return big;
      }
      const answer = kvCapacity.answer(config, Math.min(context, model.limit));
      big.append(`${model.name}: `, make("strong", {}, plural(answer.users, "users")), ` at ${tokens(Math.min(context, model.limit))} on ${onDevices(config.size, gpu.short)}`);
      if (context > model.limit) big.append(`, its own limit: ${tokens(context)} is beyond it`);
      else if (context < model.limit && config.longest < model.limit) big.append("; one request may grow to ", make("strong", {}, roughTokens(config.longest)), ` of its ${tokens(model.limit)}`);
      else if (context < model.limit) big.append("; ", make("strong", {}, count(kvCapacity.answer(config, model.limit).users)), ` at its full ${tokens(model.limit)}`);
      big.append(answer.verdict === "tight" ? ". Tight: less room than the estimate is sure of." : ".");
      return big;
    }

    function memoryBar(config, context) {
      const answer = kvCapacity.answer(config, context);
      const state = Math.min(answer.users * config.state, answer.users * answer.request);
      const held = answer.users * answer.request - state;
      const parts = [["weights", "weights", config.resident], ["cache", "KV cache in use", held], ["state", "recurrent state", state], ["reserve", "activations and reserve", config.reserve], ["free", "left over", config.gpu.usable - config.resident - config.reserve - held - state]].filter(([, , bytes]) => bytes > 0);
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      for (const [key, value] of [["class", "kv-bar"], ["viewBox", "0 0 1000 40"], ["preserveAspectRatio", "none"], ["role", "img"], ["aria-label", `Where one device's memory goes: ${parts.map(([, label, bytes]) => `${label} ${gib(bytes, 1)} GiB`).join(", ")}`]]) svg.setAttribute(key, value);
      let x = 0;
      for (const [role, , bytes] of parts) {
        const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        const width = (1000 * bytes) / config.gpu.usable;
        for (const [key, value] of [["class", `kv-fill-${role}`], ["x", x], ["y", 0], ["width", width], ["height", 40]]) rect.setAttribute(key, value);
        svg.append(rect);
        x += width;
      }
      const legend = make("ul", { class: "kv-legend" }, ...parts.map(([role, label, bytes]) => make("li", {}, make("i", { class: `kv-swatch kv-${role}` }), `${label} `, make("b", {}, `${gib(bytes, 1)} GiB`))));
      const each = config.size > 1 ? `Each of ${config.size} devices` : "One device";
      return make("figure", { class: "kv-figure kv-barfigure" }, svg, legend, make("figcaption", {}, `${each} with ${plural(answer.users, "users")} of ${tokens(context)} each: ${gib(config.gpu.usable)} GiB usable.`));
    }

    function restore() {
      const { state, ignored } = readState(known);
      for (const name of Object.keys(fields)) fields[name].value = state[name]?.[0] || start[name];
      if (Object.keys(state).length || ignored.length) show(ignored); else box.replaceChildren(...printed);
    }
    for (const field of Object.values(fields)) {
      field.addEventListener("change", () => { writeState(Object.fromEntries(Object.entries(fields).map(([name, f]) => [name, f.value]))); show(); });
    }
    form.addEventListener("submit", (event) => event.preventDefault());
    restore();
    return { restore };
  }

  /* --- GiB or GB -------------------------------------------------------------------------------------------- */

  function units() {
    const chosen = new URLSearchParams(location.search).get("unit") || stored("kv-unit") || "GiB";
    setUnit(chosen === "GB" ? "GB" : "GiB");
    for (const table of $$(".kv-table")) {
      const caption = $("caption", table);
      if (!$(".kv-gib", table) || !caption || $(".kv-units", caption)) continue;
      const other = () => (unit === "GiB" ? "GB" : "GiB");
      const button = make("button", { type: "button", class: "kv-chip kv-units" }, `in ${other()}`);
      button.addEventListener("click", () => {
        setUnit(other());
        try { localStorage.setItem("kv-unit", unit); } catch { /* a private window keeps nothing */ }
      });
      caption.append(" ", button);
    }
  }

  let unit = "GiB";
  function setUnit(next) {
    unit = next;
    const scale = unit === "GB" ? 1e9 : GIB;
    for (const cell of $$(".kv-size[data-value]")) {
      const bytes = Number(cell.dataset.value);
      if (bytes < 0) continue;
      const digits = (cell.textContent.split(".")[1] || "").length;
      cell.textContent = (bytes / scale).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    }
    for (const label of $$(".kv-gib")) label.textContent = unit;
    for (const button of $$(".kv-units")) button.textContent = `in ${unit === "GiB" ? "GB" : "GiB"}`;
  }

  function stored(key) {
    try { return localStorage.getItem(key); } catch { return null; }
  }

  /* --- charts ---------------------------------------------------------------------------------------------------- */

  /* The drawing is whole as it stands. When a chart is in view and the reader has begun to read
     (moved, scrolled, typed) or has been here for a while, the library comes and makes it answer. */
  let awake = null;
  function wake() {
    awake ||= new Promise((done) => {
      const events = ["pointermove", "pointerdown", "keydown", "scroll", "touchstart"];
      const ready = () => { events.forEach((name) => removeEventListener(name, ready)); done(); };
      events.forEach((name) => addEventListener(name, ready, { passive: true, once: true }));
      setTimeout(ready, 6000);
    });
    return awake;
  }

  function charts() {
    const found = $$(".kv-chart").filter((chart) => $("template.kv-spec", chart));
    if (!found.length || !("IntersectionObserver" in window)) return null;
    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        observer.unobserve(entry.target);
        wake().then(() => script("vega.js")).then(() => enliven(entry.target)).catch(() => { /* the drawing stays */ });
      }
    }, { rootMargin: "80px" });
    found.forEach((chart) => observer.observe(chart));
    return { release: () => { observer.disconnect(); found.forEach((chart) => chart.kvView?.finalize()); } };
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
      renderer: "svg", actions: false, ast: true, defaultStyle: false, tooltip: { theme: "custom", disableDefaultStyle: true },
    });
    chart.kvView = result.view;
    host.removeAttribute("style");
    drawn?.remove();
    chart.dataset.kvLive = "true";
  }

  /* --- pages ---------------------------------------------------------------------------------------------------------- */

  let parts = [];
  function start() {
    parts.forEach((part) => part?.release?.());
    document.documentElement.classList.remove("no-js");
    document.documentElement.classList.add("js");
    parts = [
      ...$$("[data-kv-index]").map(index),
      ...$$("[data-kv-filter]").map(textFilter),
      ...$$("[data-kv-switch]").map(modelSwitch),
      ...$$("[data-kv-ask]").map(ask),
      charts(),
    ];
    units();
    if ($("[data-kv-explore]")) script("kv-explore.js").then(() => parts.push(kvreport.explore($("[data-kv-explore]"))));
    if ($("[data-kv-sizer]")) script("kv-sizing.js").then(() => script("kv-sizer.js")).then(() => parts.push(kvreport.sizer($("[data-kv-sizer]"))));
    if ($("[data-kv-log]")) script("kv-loglines.js").then(() => script("kv-log.js")).then(() => parts.push(kvreport.log($("[data-kv-log]"))));
    if ($("[data-kv-compare]")) script("kv-compare.js").then(() => parts.push(kvreport.compare($("[data-kv-compare]"))));
  }

  addEventListener("popstate", () => parts.forEach((part) => part?.restore?.()));
  addEventListener("beforeprint", () => $$("details.kv-data").forEach((details) => { details.open = true; }));

  window.kvreport = { $, $$, make, count, gib, plural, tokens, roughTokens, onDevices, load, script, usersCell, readState, writeState, ignoredNote, debounce, matches, enliven, start };

  if (window.document$) window.document$.subscribe(start);
  else if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
