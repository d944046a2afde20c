/* The explorer's page: filters with counts, an answer in a sentence, the rows that serve first. The numbers
   come from kv-matrix.js, which fetches what a question needs. */
(function () {
  "use strict";

  const {
    $,
    make,
    count,
    plural,
    tokens,
    gib,
    load,
    usersCell,
    readState,
    writeState,
    ignoredNote,
    debounce,
    matches,
    onDevices,
    units,
    wake,
    copy,
  } = kvreport;
  const words = () => kvKernel.words;
  const KEPT = 20000; /* rows that are kept of a wide choice, the best ones */
  const COUNTED = 150000; /* rows of which a filter's counts are made */
  const PAGE = matchMedia("(max-width: 45em)").matches ? 20 : 50; /* rows shown at first */
  const FEW = 8; /* choices of a long list that are shown at first */
  /* The class of a model's size, as the list of models has it. */
  const sizeOf = ({ parameters }) =>
    Object.entries(words().model_sizes).findLast(([, least]) => parameters >= 1e9 * least)[0];
  /* Columns of what is chosen: where all rows have one value, a sentence says it once. */
  const CHOSEN = ["gpu", "tp", "layout", "context", "weights", "kv"];

  /* Until the printed answer has been drawn; at once where that will not be, a frame where the browser does not say. */
  const painted = () =>
    new Promise((/** @type {(value?: unknown) => void} */ done) => {
      if (document.hidden) done();
      if (PerformanceObserver.supportedEntryTypes.includes("element")) {
        new PerformanceObserver(done).observe({ type: "element", buffered: true });
      } else requestAnimationFrame(() => setTimeout(done));
      setTimeout(done, 1500);
    });

  function explore(root) {
    let home = null,
      matrix = null,
      site = null,
      state = {},
      ignored = [],
      /** @type {any} */
      machine = null, /* unequal accelerators that the address names */
      found = null,
      shown = PAGE,
      turn = 0,
      several = false,
      awake = false;
    /** @type {any[]} */
    let facets = [];
    /** @type {Record<string, any>} */
    const view = {};
    const base = new URL(root.dataset.kvExplore, location.href);
    /* What is asked where nothing is chosen; the page has its answer printed. */
    const START = Object.fromEntries(
      [...new URLSearchParams(root.dataset.kvStart)].map(([key, one]) => [key, [one]]),
    );
    if (![`?${root.dataset.kvStart}`, ""].includes(location.search)) {
      $(".kv-said", root).textContent = "Reading the catalog …";
    }
    const file = (name) => load(new URL(name, base));

    // The printed answer is shown before the numbers are asked for.
    const first = painted().then(() =>
      Promise.all(["site", "models", "traits"].map((name) => file(`explore/${name}.json`)))
    );
    first.then(async ([shared, common, traits]) => {
      matrix = home = kvMatrix.open((name) => file(`explore/${name}.json`), shared, { ...common, ...traits });
      site = matrix.site;
      await kvreport.pause();
      build();
      await kvreport.pause();
      restore();
      wake().then(() => {
        awake = true;
        further(turn);
      });
    }).catch((error) => {
      $(".kv-said", root).textContent =
        `The catalog could not be read (${error.message}). The data page has every row.`;
    });

    /* --- columns: [id, title, value of a row, numeric, unit, help] ------------------------------------- */

    const speedOf = (row) => {
      if (!row.speed && awake) row.speed = 1 / matrix.decodeSeconds(row); // NaN until the rates are there
      return row.speed || 0;
    };
    const unlimited = (n) => n >= kvKernel.UNLIMITED_REQUESTS;
    const month = (text) => (text ? Number(text.replace("-", "").padEnd(6, "0")) : 0);

    const waysOf = ({ ways, tp }) => ways || words().ways.tp.replace("{number}", tp);

    /** @type {[string, string, (row: any) => any, boolean, string, string][]} */
    const COLUMNS = [
      ["model", "Model", (row) => row.config.model.name, false, "", ""],
      [
        "requests",
        "Concurrent requests",
        (row) => row.users,
        true,
        "",
        "Requests of this context that the whole deployment runs at once",
      ],
      ["gpu", "GPU", (row) => row.config.gpu.short, false, "", ""],
      ["tp", "GPUs", (row) => row.config.layout.devices, true, "", "GPUs of one deployment"],
      [
        "layout",
        "Layout",
        (row) => waysOf(row.config.layout),
        false,
        "",
        "How the model is divided: TP tensor parallelism, DP data parallelism, PP pipeline stages",
      ],
      ["context", "Context", (row) => row.context, true, "tokens", "Tokens of each request"],
      ["parameters", "Parameters", (row) => row.config.model.parameters, true, "", ""],
      ["active", "Active", (row) => row.config.model.active, true, "", "Parameters that one token uses"],
      ["released", "Released", (row) => month(row.config.model.release), true, "", ""],
      [
        "speed",
        "Maximum speed under load",
        speedOf,
        true,
        "tokens/s",
        "Most tokens per second that one request can get while all of them run: bandwidth / bytes read per step",
      ],
      [
        "longest",
        "Longest context",
        longest,
        true,
        "tokens",
        "The longest single request that fits",
      ],
      [
        "bound",
        "Upper bound",
        (row) => row.ceiling,
        true,
        "requests",
        "Requests if the engine needed no memory for itself",
      ],
      ["weights", "Weight format", (row) => row.config.weightFormat, false, "", ""],
      ["kv", "KV format", (row) => row.config.kvFormat, false, "", ""],
      ["weight-bytes", "Weights", (row) => row.config.weights, true, "each", "On each GPU"],
      ["pool", "KV pool", (row) => row.config.pool, true, "each", "On each GPU"],
      [
        "request-bytes",
        "One request",
        (row) => row.request,
        true,
        "each",
        "KV cache of one request on each GPU",
      ],
    ];

    function longest({ config }) {
      if (!(config.longest >= 0)) {
        config.longest = kvCapacity.longestOf(config.ranks || [config]);
      }
      return config.longest;
    }

    /* Columns whose value all rows share, with one of these rows; one that the rows are sorted by stays. */
    function shared() {
      const [first] = found.rows;
      const alike = COLUMNS.filter(([id, , value]) =>
        first && CHOSEN.includes(id) && state.sort?.[0].replace(/^-/, "") !== id &&
        found.rows.every((row) => value(row) === value(first))
      );
      return new Set(alike.map(([id]) => id));
    }

    /* What every row is of, in words. */
    function inEveryRow(columns) {
      const { config, context } = found.rows[0] || {};
      const has = (id, text) => columns.has(id) && text();
      const named = (list, name) => formatLabel(list.find((one) => one.name === name) || { label: name });
      const parts = [
        has("gpu", () => config.gpu.short),
        has("tp", () => plural(config.layout.devices, "GPU|GPUs")),
        has("layout", () => config.layout.ways),
        has("context", () => `${tokens(context)} context`),
        has(
          "weights",
          () => `weights ${named(site.weight_formats, config.weightFormat).replace(/^As /, "as ")}`,
        ),
        has("kv", () => `KV cache ${named(site.kv_formats, config.kvFormat)}`),
      ].filter(Boolean);
      return parts.length ? `In every row: ${parts.join(", ")}. ` : "";
    }

    /* --- filters ------------------------------------------------------------------------------------------ */

    function axes() {
      const frequent = (values) => {
        const counts = new Map();
        for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
        return [...counts].sort((a, b) => b[1] - a[1]).map(([value]) => [value, value]);
      };
      const rank = (gpu) => {
        const known = site.known.indexOf(gpu.id);
        return known >= 0 ? known : site.known.length + (gpu.rented ? 0 : 1);
      };
      const gpus = [...site.gpus].sort((a, b) => rank(a) - rank(b));
      const kinds = words().attention_types;
      return [
        {
          key: "gpu",
          label: "GPU or accelerator",
          single: true,
          values: gpus.map((gpu) => [gpu.id, gpu.short]),
          of: (row) => row.config.gpu.id,
        },
        {
          key: "tp",
          label: "GPUs and layout",
          single: true,
          values: site.layouts.map((layout, n) => [layoutKey(n), layout.words]),
          of: (row) => layoutKey(site.layouts.indexOf(row.config.layout)),
        },
        {
          key: "context",
          label: "Context per request (tokens)",
          single: true,
          values: site.contexts.map((n) => [String(n), tokens(n)]),
          of: (row) => String(row.context),
        },
        {
          key: "weights",
          label: "Weight format",
          single: true,
          values: site.weight_formats.map((one) => [one.name, formatLabel(one)]),
          of: (row) => row.config.weightFormat,
        },
        {
          key: "kv",
          label: "KV cache format",
          single: true,
          values: [["own", "Model default"], ...site.kv_formats.map((one) => [one.name, formatLabel(one)])],
          of: (row) => row.config.kvFormat,
        },
        {
          key: "kind",
          label: "Attention type",
          values: Object.entries(kinds).filter(([id]) => matrix.models.some((model) => model.kind === id)),
          of: (row) => row.config.model.kind,
        },
        {
          key: "input",
          label: "Input",
          values: [["text", "Text only"], ["vision", "Vision"], ["audio", "Audio"]],
          of: (row) => row.config.model.inputs.split("|"),
        },
        {
          key: "size",
          label: "Model size (parameters)",
          values: Object.keys(words().model_sizes).map((label) => [label, label]),
          of: (row) => sizeOf(row.config.model),
        },
        {
          key: "maker",
          label: "Maker",
          values: frequent(matrix.models.map((model) => model.maker)),
          of: (row) => row.config.model.maker,
        },
        {
          key: "verdict",
          label: "Verdict",
          values: Object.entries(words().verdict_labels).filter(([id]) => !kvMatrix.REFUSED.includes(id)),
          of: (row) => row.verdict,
        },
      ];
    }

    /* A layout in the address: the number of GPUs that tensors are divided over, or the layout's name. */
    const layoutKey = (place) => String(site.sizes[place] ?? site.layouts[place].label);

    const formatLabel = (
      one,
    ) => (one.name === "released" ? "As released" : one.label.split(/[,(]| in /)[0].trim());

    function build() {
      facets = axes();
      const field = (name, title, help, attributes) => {
        const id = `kv-explore-${name}`;
        view[name] = make("input", {
          name,
          "aria-describedby": id,
          autocomplete: "off",
          ...attributes,
        });
        view[name].addEventListener("input", debounce(typed, 90));
        return make(
          "label",
          {},
          `${title} `,
          view[name],
          make("small", { id, class: "kv-help" }, help),
        );
      };
      const typed = () => {
        takeText();
        apply(true);
      };
      view.engine = make(
        "select",
        { name: "engine", "aria-describedby": "kv-explore-engine" },
        ...site.engines.filter((one) => one.family !== "ceiling").map((one) =>
          make("option", { value: one.name }, one.label)
        ),
      );
      view.engine.addEventListener("change", () => {
        takeText();
        if (view.engine.value === site.engine.default) delete state.engine;
        else state.engine = [view.engine.value];
        apply();
      });
      view.said = make(
        "p",
        { class: "kv-said kv-big", "data-kv-answer": "", "aria-live": "polite" },
        "Reading the catalog …",
      );
      view.why = make("p", { class: "kv-why" });
      view.unequal = make("p", { class: "kv-note", "data-kv-unequal": "", hidden: "" });
      const button = (title, act) =>
        make("button", { type: "button", class: "kv-button", onclick: act, hidden: "" }, title);
      view.clear = button("Clear filters", clear);
      view.take = button("Download as CSV", download);
      view.link = button("Copy link", (event) => copy(location.href, event.currentTarget));
      view.ignored = make("span");
      // Made once: a button that is replaced loses the focus, and a click that has begun.
      view.actions = make(
        "p",
        { class: "kv-actions" },
        ...[view.clear, view.take, view.link, view.ignored].flatMap((one) => [one, " "]),
      );
      view.table = make("table", { class: "kv-table kv-grid kv-explored", id: "explore-table" });
      // Hidden until there are rows: what comes above the table first would move it.
      view.scroll = make("div", {
        class: "kv-scroll kv-scroll--open",
        "data-kv-answer": "",
        "data-kv-own-csv": "", // of all rows, above the table
        role: "region",
        "aria-label": "Configurations, those that fit first",
        hidden: "",
      }, view.table);
      view.after = make("p", { class: "kv-after", hidden: "" });
      view.several = make("button", {
        type: "button",
        class: "kv-chip",
        "aria-pressed": "false",
        onclick: () => {
          several = !several;
          view.several.setAttribute("aria-pressed", String(several));
        },
      }, "Select several values per filter");
      view.door = query();
      root.replaceChildren(
        make(
          "div",
          { class: "kv-controls" },
          field("name", "Model name", "Part of a name, id, maker or alias. Example: llama 70b", {
            type: "search",
            placeholder: "any model",
          }),
          field(
            "requests",
            "Minimum concurrent requests",
            "Default: 0. Models that do not fit are listed last.",
            {
              type: "number",
              min: 0,
              step: 1,
              placeholder: "0",
            },
          ),
          make(
            "label",
            {},
            "Engine and release ",
            view.engine,
            make(
              "small",
              { id: "kv-explore-engine", class: "kv-help" },
              "The engine whose memory rules apply",
            ),
          ),
        ),
        view.said,
        view.why,
        view.unequal,
        filters(),
        view.actions,
        view.scroll,
        view.after,
        view.door,
      );
      view.name.addEventListener("focus", () => matrix.aliases().catch(() => {}), { once: true });
      head();
    }

    /* The filters; on a narrow screen they wait behind their title, so that the answer comes first. */
    function filters() {
      const box = make(
        "details",
        { class: "kv-filters" },
        make("summary", {}, "Filters"),
        make("div", { class: "kv-facets" }, ...facets.map(fieldset)),
        make(
          "p",
          { class: "kv-note" },
          "The number next to a value is how many configurations with this value fit. Next to a verdict, it is how many have this verdict. ",
          view.several,
        ),
      );
      box.open = !matchMedia("(max-width: 44.9375em)").matches;
      return box;
    }

    function fieldset(facet) {
      const box = make("div", { class: "kv-chips" });
      facet.chips = new Map();
      const rest = facet.values.length > FEW + 2 && !["context", "verdict"].includes(facet.key)
        ? facet.values.length - FEW
        : 0;
      const more = rest
        ? make("button", {
          type: "button",
          class: "kv-chip kv-more",
          "aria-expanded": "false",
          onclick: () => {
            const next = facet.values[FEW][0];
            facet.values.forEach(facet.reveal);
            more.remove();
            facet.chips.get(next).focus();
          },
        }, `${rest} more`)
        : null;
      const chip = (value, label, act) =>
        make(
          "button",
          { type: "button", class: "kv-chip", "aria-pressed": "false", value, onclick: act },
          label,
          " ",
          make("small"),
        );
      facet.reveal = ([value, label]) => {
        if (facet.chips.has(value)) return;
        const made = chip(
          value,
          label,
          (event) => choose(facet, value, several || event.shiftKey || event.ctrlKey || event.metaKey),
        );
        facet.chips.set(value, made);
        box.insertBefore(made, more);
      };
      facet.any = chip("", "Any", () => {
        takeText();
        delete state[facet.key];
        apply();
      });
      box.append(facet.any);
      if (more) box.append(more);
      facet.values.slice(0, rest ? FEW : undefined).forEach(facet.reveal);
      return make(
        "fieldset",
        { "data-facet": facet.key },
        make("legend", {}, facet.label),
        box,
        facet.key === "tp" ? make("small", { class: "kv-help" }, words().explorer.layouts) : null,
      );
    }

    /* One value at a time, unless the reader asks for several; makers and attention types add up. */
    function choose(facet, value, adds) {
      takeText();
      const now = new Set(state[facet.key] || []);
      if (now.has(value)) now.delete(value);
      else {
        if (facet.single && !adds) now.clear();
        now.add(value);
      }
      if (now.size) state[facet.key] = [...now];
      else delete state[facet.key];
      apply();
    }

    /* What was typed a moment ago counts too. */
    function takeText() {
      for (const name of ["name", "requests"]) {
        const text = view[name].value.trim();
        if (text) state[name] = [text];
        else delete state[name];
      }
    }

    function apply(replace) {
      shown = PAGE;
      writeState(Object.keys(state).length ? state : { show: "all" }, replace);
      return show();
    }

    /* --- the question ------------------------------------------------------------------------------------ */

    function choiceOf(asked) {
      const has = (key, value) => !asked[key] || asked[key].includes(value);
      const rank = new Map(facets[0].values.map(([id], n) => [id, n]));
      return {
        models: matrix.models.filter((model) =>
          (!asked.name || matches(textOf(model), asked.name[0])) && has("kind", model.kind) &&
          (!asked.input || model.inputs.split("|").some((one) => asked.input.includes(one))) &&
          has("maker", model.maker) && has("size", sizeOf(model))
        ),
        gpus: site.gpus.filter((gpu) => has("gpu", gpu.id)).sort((a, b) => rank.get(a.id) - rank.get(b.id)),
        sizes: site.layouts.map((_, n) => n).filter((n) => has("tp", layoutKey(n))),
        contexts: site.contexts.filter((n) => has("context", String(n))),
        forms: site.weight_formats.map((one) => one.name).filter((name) => has("weights", name)),
        caches: asked.kv || site.kv_formats.map((one) => one.name),
      };
    }

    const textOf = (model) =>
      [model.name, model.id, model.maker, words().attention_types[model.kind], ...model.aliases]
        .join(" ").toLowerCase();

    function wantedBy(asked) {
      const least = Number(asked.requests?.[0] || 0);
      return (row) =>
        (!asked.verdict || asked.verdict.includes(row.verdict)) &&
        (!least || (row.users >= least && kvMatrix.serves(row)));
    }

    /* Rows that serve come first; then as the reader asked, or what most people look for: the newest models
       before older ones, originals before copies, more requests before fewer. */
    function order() {
      const asked = state.sort?.[0];
      const column = COLUMNS.find(([id]) => id === asked?.replace(/^-/, ""));
      const sign = asked?.startsWith("-") ? -1 : 1;
      const bySort = column
        ? (a, b) => {
          const x = column[2](a), y = column[2](b);
          return sign * (typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true }));
        }
        : () => 0;
      const name = state.name?.[0]?.toLowerCase();
      const starts = (row) => (name && row.config.model.name.toLowerCase().startsWith(name) ? 1 : 0);
      return (a, b) =>
        Number(kvMatrix.serves(b)) - Number(kvMatrix.serves(a)) || bySort(a, b) ||
        starts(b) - starts(a) || a.config.model.copy - b.config.model.copy ||
        month(b.config.model.release) - month(a.config.model.release) || b.users - a.users ||
        a.config.model.place - b.config.model.place;
    }

    async function show() {
      const mine = (turn += 1);
      kvreport.busy();
      mark();
      let choice;
      try {
        const under = state.engine ? await home.under(state.engine[0]) : home;
        if (mine !== turn) return;
        matrix = under;
        site = matrix.site;
        choice = choiceOf(state);
        if (state.name) await matrix.aliases();
        if (!matrix.has(choice)) await matrix.need(choice);
        if (awake && !matrix.hasBounds(choice)) await matrix.bounds(choice);
      } catch (error) {
        if (mine !== turn) return;
        kvreport.busy(false);
        view.said.textContent =
          `The catalog could not be read (${error.message}). The data page has every row.`;
        view.scroll.hidden = true;
        return;
      }
      await kvreport.pause();
      if (mine !== turn) return;
      const asked = choiceOf(state);
      const many = matrix.rowsOf(asked);
      const next = await kvMatrix.collect(
        matrix.rows(asked),
        wantedBy(state),
        order(),
        KEPT,
        (total) => {
          const place = $(".kv-computing") || view.said;
          place.textContent = `Reading ${count(many)} configurations: ${Math.floor(100 * total / many)}%`;
        },
        () => mine === turn,
      );
      if (!next) return;
      await kvreport.pause();
      if (mine !== turn) return;
      found = next;
      speak();
      draw();
      kvreport.busy(false);
      root.dataset.kvShown = location.search;
      if (awake) further(mine);
    }

    /* Until nothing is pressed: a button that moves away under a finger loses the click that has begun. */
    let released = Promise.resolve();
    root.addEventListener("pointerdown", () => {
      released = new Promise((resolve) => {
        // A click follows the release at once, and a timer follows the click.
        const done = () => setTimeout(resolve);
        for (const end of ["pointerup", "pointercancel"]) addEventListener(end, done, { once: true });
      });
    });

    /* What can wait until a reader begins to choose: speeds, then the counts of each filter. */
    async function further(mine) {
      if (!found) return;
      try {
        const choice = choiceOf(state);
        if (!matrix.hasBounds(choice)) {
          await released;
          if (mine === turn) show(); // again, with the upper bounds
          return;
        }
        await matrix.speed(choice, () => file("peaks.json"));
        if (mine !== turn) return;
        await kvreport.pause();
        await released;
        if (mine !== turn) return;
        if (/speed/.test(state.sort?.[0] || "")) found.rows.sort(order());
        draw();
        for (const facet of facets) {
          const freed = { ...state };
          delete freed[facet.key];
          const counted = choiceOf(freed);
          await matrix.need(counted);
          if (mine !== turn) return;
          await tally(facet, counted, wantedBy(freed), mine);
        }
      } catch { /* the rows are there; the counts are not */ }
    }

    async function tally(facet, choice, wanted, mine) {
      const totals = new Map();
      const many = matrix.rowsOf(choice) <= COUNTED;
      if (many) {
        const counting = (row) => {
          if (wanted(row) && (facet.key === "verdict" || kvMatrix.serves(row))) {
            for (const one of [].concat(facet.of(row))) totals.set(one, (totals.get(one) || 0) + 1);
            if (facet.key === "kv" && row.config.kvFormat === row.config.model.kv) {
              totals.set("own", (totals.get("own") || 0) + 1);
            }
          }
          return false;
        };
        const done = await kvMatrix.collect(
          matrix.rows(choice),
          counting,
          () => 0,
          1,
          () => {},
          () => mine === turn,
        );
        if (!done) return;
      }
      await released;
      if (mine !== turn) return;
      for (const [value, chip] of facet.chips) {
        const number = totals.get(value) || 0;
        $("small", chip).textContent = many ? count(number) : "";
        chip.classList.toggle("kv-empty", many && number === 0 && value !== "");
      }
    }

    /* --- the answer ---------------------------------------------------------------------------------------- */

    /* On a phone a row is a card, where each figure has its unit beside it; that of sizes is the reader's choice. */
    const unitOf = (id) => {
      const unit = COLUMNS.find(([one]) => one === id)[4];
      return unit && unit !== "each" ? `, ${unit}` : "";
    };

    function mark() {
      for (const facet of facets) {
        for (const value of state[facet.key] || []) {
          facet.reveal(facet.values.find(([one]) => one === value));
        }
        facet.any.setAttribute("aria-pressed", String(!state[facet.key]));
        for (const [value, chip] of facet.chips) {
          chip.setAttribute("aria-pressed", String(Boolean(state[facet.key]?.includes(value))));
        }
      }
      view.engine.value = state.engine?.[0] || site.engine.default;
      for (const name of ["name", "requests"]) {
        const text = state[name]?.[0] || "";
        if (view[name].value.trim() !== text) kvreport.put(view[name], text);
      }
      for (const [id, , , numeric] of COLUMNS) {
        const cell = $(`th[data-column="${id}"]`, view.table);
        const now = state.sort?.[0];
        if (now === id) cell.setAttribute("aria-sort", "ascending");
        else if (now === `-${id}`) cell.setAttribute("aria-sort", "descending");
        else cell.removeAttribute("aria-sort");
        cell.dataset.next = numeric ? (now === `-${id}` ? id : `-${id}`) : now === id ? `-${id}` : id;
      }
    }

    const labelOf = (key) => {
      const facet = facets.find((one) => one.key === key);
      return (state[key] || []).map((value) =>
        (facet.values.find(([one]) => one === value) || [0, value])[1]
      );
    };

    /* The question in words: "2 × RTX 4090, 32K context, as released". */
    function question() {
      const parts = [];
      const gpu = labelOf("gpu"), tp = labelOf("tp");
      if (gpu.length === 1 && tp.length === 1) {
        const { devices, ways } = site.layouts.find((_, n) => layoutKey(n) === state.tp[0]);
        parts.push(onDevices(devices, gpu[0]));
        if (ways) parts.push(ways);
      } else {
        if (gpu.length) parts.push(gpu.join(" or "));
        if (tp.length) parts.push(tp.join(" or "));
      }
      if (state.context) parts.push(`${labelOf("context").join(" or ")} context`);
      if (state.weights) parts.push(`weights ${labelOf("weights").join(" or ").replace(/^As /, "as ")}`);
      if (state.kv && !(state.kv.length === 1 && state.kv[0] === "own")) {
        parts.push(`KV cache ${labelOf("kv").join(" or ")}`);
      }
      for (const key of ["kind", "input", "size", "maker", "verdict"]) {
        if (state[key]) parts.push(labelOf(key).join(" or "));
      }
      if (state.engine) parts.push(site.engine.label);
      if (state.name) parts.push(`name contains “${state.name[0]}”`);
      if (state.requests) parts.push(`at least ${plural(Number(state.requests[0]), "request|requests")}`);
      return parts.join(", ");
    }

    function speak() {
      const asked = question();
      const all = found.total;
      view.said.replaceChildren(
        make("strong", {}, count(found.fit)),
        ` of the ${plural(all, "listed configuration|listed configurations")} ${
          found.fit === 1 ? "fits" : "fit"
        }`,
        asked ? ` (${asked}).` : ".",
      );
      view.why.textContent = unpublished() || (found.rows.length ? "" : culprit());
      view.clear.hidden = isStart();
      view.take.hidden = !found.rows.length;
      view.link.hidden = !copy;
      view.ignored.replaceChildren(ignoredNote(ignored) || "");
      const told = machine?.devices.every((gpu) => state.gpu?.includes(gpu.id));
      view.unequal.hidden = !told;
      view.unequal.replaceChildren(...(told ? unequal() : []));
      if (!view.query.hidden) view.asked();
    }

    /* What the rows cannot say of unequal accelerators, and the pages that do. */
    function unequal() {
      const each = [machine, ...new Set(machine.devices)].map((gpu) => `gpus=${gpu.id}`);
      const link = (page, title) => make("a", { href: new URL(`../../${page}`, base).href }, title);
      return [
        `No row combines ${machine.short}, because each row is for accelerators of one kind. `,
        link(`sizer/?gpu=${machine.id}`, "The sizer"),
        " and ",
        link(`compare/?${each.join("&")}`, "the comparison"),
        " answer for unequal accelerators. The rows below are for each kind separately.",
      ];
    }

    const filled = (name, values) =>
      words().explorer[name].replace(/\{(\w+)\}/g, (_, value) => values[value]);

    /* Accelerators that were asked for and have no numbers of another engine. */
    function unpublished() {
      if (!state.engine) {
        const machines = state.gpu ? choiceOf(state).gpus.filter((gpu) => gpu.local) : [];
        const names = machines.map((gpu) => gpu.short).join(", ");
        const values = { names, engine: site.engine.label, local: machines[0]?.local.label };
        return names && filled("no_platform", values);
      }
      const missing = matrix.unpublished(choiceOf(state).gpus);
      if (!missing.length) return "";
      const names = missing.slice(0, FEW).map((gpu) => gpu.short);
      if (missing.length > FEW) names.push(`${count(missing.length - FEW)} others`);
      return filled("not_published", {
        engine: site.engine.label,
        number: count(site.gpus.length - matrix.unpublished(site.gpus).length),
        all: count(site.gpus.length),
        names: names.join(", "),
      });
    }

    const isStart = () =>
      JSON.stringify(Object.entries(state).sort()) === JSON.stringify(Object.entries(START).sort());

    function clear() {
      state = structuredClone(START);
      ignored = [];
      machine = null;
      view.name.value = "";
      view.requests.value = "";
      apply();
      view.name.focus();
    }

    /* Which filter leaves nothing: rows that there would be without it. */
    function culprit() {
      const would = [];
      for (const key of ["name", "requests", ...facets.map((facet) => facet.key)]) {
        if (!state[key]) continue;
        const freed = { ...state };
        delete freed[key];
        const choice = choiceOf(freed);
        if (!matrix.has(choice) || matrix.rowsOf(choice) > COUNTED) continue;
        const wanted = wantedBy(freed);
        let rest = 0;
        for (const row of matrix.rows(choice)) if (wanted(row)) rest += 1;
        if (!rest) continue;
        const title = { name: "the model name", requests: "the minimum number of requests" }[key] ||
          `the filter “${facets.find((facet) => facet.key === key).label}”`;
        would.push(`Without ${title}: ${count(rest)}.`);
      }
      return would.length ? would.join(" ") : "No single filter causes this; clear the filters.";
    }

    /* --- the table ------------------------------------------------------------------------------------------- */

    function head() {
      const cells = COLUMNS.map(([id, title, , numeric, unit, help]) => {
        const label = unit === "each"
          ? [make("span", { class: "kv-unit" }, make("span", { class: "kv-gib" }, "GiB"), " per GPU")]
          : unit
          ? [make("span", { class: "kv-unit" }, unit)]
          : [];
        const cell = make("th", {
          scope: "col",
          class: numeric && "kv-num",
          "data-column": id,
          title: help || null,
        });
        cell.append(make(
          "button",
          {
            type: "button",
            class: "kv-sort",
            onclick: () => {
              takeText();
              state.sort = [cell.dataset.next];
              apply(true);
            },
          },
          title,
          ...label,
        ));
        return cell;
      });
      view.body = make("tbody");
      view.shared = make("span", { class: "kv-shared" });
      view.table.replaceChildren(
        make(
          "caption",
          {},
          view.shared,
          "Requests are for the whole deployment; sizes are per GPU. Rows that fit come first.",
        ),
        make("thead", {}, make("tr", {}, ...cells)),
        view.body,
      );
    }

    function draw() {
      for (const part of [view.scroll, view.after, view.door]) part.hidden = false;
      const again = kvreport.focusIn(view.body);
      view.alike = shared();
      view.shared.textContent = inEveryRow(view.alike);
      for (const cell of view.table.tHead.rows[0].cells) cell.hidden = view.alike.has(cell.dataset.column);
      view.body.replaceChildren(...found.rows.slice(0, shown).map(line));
      again();
      units(view.table);
      rest();
    }

    function rest() {
      const left = found.rows.length - shown;
      const kept = found.rows.length === KEPT
        ? [
          ` The table has the best ${count(KEPT)}; `,
          make("a", { href: "../data/" }, "the data page"),
          " has every row.",
        ]
        : [];
      view.after.replaceChildren(
        ...(left > 0
          ? [
            make(
              "button",
              {
                type: "button",
                class: "kv-button",
                onclick: () => {
                  const from = shown;
                  shown += PAGE * 10;
                  view.body.append(...found.rows.slice(from, shown).map(line));
                  units(view.table);
                  rest();
                },
              },
              left > PAGE * 10
                ? `Show ${count(PAGE * 10)} more of ${count(left)}`
                : `Show ${count(left)} more`,
            ),
            make(
              "span",
              { class: "kv-paper" },
              `Only the first ${count(shown)} of ${count(shown + left)} rows are printed.`,
            ),
          ]
          : []),
        ...kept,
      );
    }

    /* Unlimited is never a number; before the first move the bound is not there yet. */
    function bound(row) {
      if (!unlimited(row.ceiling)) return count(row.ceiling);
      return row.request > 0 ? "–" : words().attention_types.none;
    }

    function line(row) {
      const { config } = row;
      const { model } = config;
      const up = new URL("../", location.href);
      const noCache = unlimited(row.held);
      const cell = (id, attributes, text) =>
        make("td", {
          ...attributes,
          "data-label": COLUMNS.find(([one]) => one === id)[1],
          "data-unit": unitOf(id),
          hidden: view.alike.has(id),
        }, text);
      const number = (id, value, text) => cell(id, { class: "kv-num", "data-value": value }, text);
      const size = (id, value, text) => cell(id, { class: "kv-num kv-size", "data-value": value }, text);
      const answer = usersCell(row.users, row.verdict);
      answer.dataset.value = row.users;
      answer.dataset.label = "Concurrent requests";
      if (["cache_exceeds_pool", "weights_exceed_memory", "may_fit"].includes(row.verdict) && row.short > 0) {
        const text = `needs ${kvreport.missing(row.short)} GiB more`;
        answer.replaceChildren(
          make("button", { type: "button", class: "kv-whybutton", onclick: () => why(row) }, text),
        );
      }
      if (noCache && row.users > 0) answer.title = words().attention_types.none;
      const speed = speedOf(row);
      const own = longest(row);
      const label = (list, name) =>
        formatLabel(list.find((one) => one.name === name) || { name, label: name });
      const place = [
        config.gpu.id,
        layoutKey(site.layouts.indexOf(config.layout)),
        row.context,
        config.weightFormat,
        config.kvFormat,
        model.slug,
      ];
      return make(
        "tr",
        { id: `case-${place.join("-")}` },
        make(
          "th",
          { scope: "row" },
          make("a", { href: new URL(`models/${model.slug}/`, up).href }, model.name),
        ),
        answer,
        cell("gpu", {}, make("a", { href: new URL(`gpus/${config.gpu.id}/`, up).href }, config.gpu.short)),
        number("tp", config.layout.devices, String(config.layout.devices)),
        cell("layout", {}, waysOf(config.layout)),
        number("context", row.context, tokens(row.context)),
        number("parameters", model.parameters, kvreport.parametersText(model.parameters)),
        number("active", model.active, kvreport.parametersText(model.active)),
        number("released", month(model.release), model.release || "–"),
        number("speed", speed, speed ? (speed >= 10 ? count(Math.floor(speed)) : speed.toFixed(1)) : "–"),
        number("longest", own, own ? tokens(own) : "–"),
        number("bound", row.ceiling, bound(row)),
        cell("weights", {}, label(site.weight_formats, config.weightFormat)),
        cell("kv", {}, label(site.kv_formats, config.kvFormat)),
        size("weight-bytes", config.weights, gib(config.weights)),
        size("pool", config.pool, gib(config.pool)),
        size("request-bytes", row.request, gib(row.request, 3)),
      );
    }

    /* The explanation of a row that does not fit; its scripts come with the first one. */
    async function why({ config, context }) {
      const scripts = ["core-lists", "state", "chart", "result", "form"];
      await Promise.all(scripts.map((name) => kvreport.script(`kv-${name}.js`)));
      await kvreport.whyOf(base, {
        model: config.model.slug,
        gpu: config.gpu.id,
        ...kvState.stateOf(config.layout),
        weights: config.weightFormat === "released" ? undefined : config.weightFormat,
        kv: config.kvFormat,
        engine: state.engine?.[0],
        context,
      });
    }

    /* --- taking it away --------------------------------------------------------------------------------------- */

    async function download() {
      const choice = choiceOf(state);
      await Promise.all([kvreport.script("kv-queries.js"), matrix.bounds(choice)]);
      const rows = kvMatrix.collect(
        matrix.rows(choice),
        wantedBy(state),
        order(),
        KEPT,
        () => {},
        () => true,
      );
      const text = kvQueries.csv((await rows).rows, longest, site.engine.name);
      const name = [
        "kvreport",
        ...(state.engine || []),
        ...(state.gpu || []),
        ...(state.context || []),
        site.release,
      ].join("-");
      kvreport.save(text, "text/csv", `${name}.csv`);
    }

    /* The same filters as a query over the published Parquet file, for DuckDB or pandas. */
    function query() {
      const sql = make("code"), python = make("code");
      const block = (title, code) =>
        make(
          "div",
          { class: "kv-command highlight" },
          make("p", { class: "kv-kicker" }, title),
          make("pre", {}, code),
          copy
            ? make("button", {
              type: "button",
              class: "kv-chip",
              onclick: (event) => copy(code.textContent, event.currentTarget),
            }, `Copy ${title} query`)
            : null,
        );
      view.query = make("div", { hidden: "" }, block("DuckDB", sql), block("pandas", python));
      view.asked = () => {
        const filters = kvQueries.conditions(state, choiceOf(state), site);
        const place = new URL("../downloads/capacity.parquet", location.href).href;
        sql.textContent = kvQueries.sql(place, filters, least());
        python.textContent = kvQueries.pandas(place, filters, least());
        const named = { engine: home.site.engine.label, other: site.engine.label, name: site.engine.name };
        view.whose.textContent = filled(state.engine ? "query_other_engine" : "query", named);
        view.sql?.set(kvQueries.sql("capacity", filters, least()).replace("'capacity'", "capacity"));
      };
      const details = make(
        "details",
        { class: "kv-query", hidden: "" },
        make("summary", {}, "Query with SQL"),
        view.whose = make("p", { class: "kv-note" }),
        view.query,
      );
      details.addEventListener("toggle", () => {
        if (!details.open) {
          view.query.hidden = true;
          return;
        }
        const folder = root.dataset.kvSql;
        Promise.all([kvreport.script("kv-queries.js"), folder ? kvreport.script("kv-sql.js") : null]).then(
          () => {
            if (folder && !view.sql) {
              view.sql = kvSql.panel(
                new URL(folder, location.href).href,
                new URL("../downloads/capacity.parquet", location.href).href,
              );
              view.query.prepend(view.sql.node);
            }
            view.query.hidden = false;
            view.asked();
          },
        ).catch(() => {});
      });
      return details;
    }

    const least = () => Number(state.requests?.[0] || 0);

    /* --- the address ------------------------------------------------------------------------------------------ */

    function restore() {
      if (!site) return;
      const known = {
        name: null,
        requests: null,
        users: null,
        show: ["all"],
        sort: COLUMNS.flatMap(([id]) => [id, `-${id}`]),
      };
      const named = new URLSearchParams(location.search).getAll("gpu").filter((text) => /[+\s]/.test(text));
      machine = named.map((text) => kvCapacity.gpuOf(site, text)).find((one) => one?.devices) || null;
      known.engine = site.engines.map((one) => one.name).filter((name) => name !== site.engine.default);
      for (const facet of facets) known[facet.key] = facet.values.map(([value]) => value);
      ({ state, ignored } = readState(known, facets.map((facet) => facet.key)));
      if (machine) {
        const used = named.find((text) => kvCapacity.gpuOf(site, text)?.devices);
        ignored = ignored.filter((text) => text !== `gpu=${used}`);
        const alone = new Set([...(state.gpu || []), ...machine.devices.map((gpu) => gpu.id)]);
        state.gpu = [...alone];
      }
      state.requests ||= state.users; /* the key's name until 2026 */
      delete state.users;
      if (!state.requests) delete state.requests;
      else if (!/^\d{1,9}$/.test(state.requests[0])) {
        ignored.push(`requests=${state.requests[0]}`);
        delete state.requests;
      }
      const all = state.show;
      delete state.show;
      if (!all && !Object.keys(state).length) {
        state = structuredClone(START);
        writeState(state, true);
      }
      kvreport.put(view.name, state.name?.[0] || "");
      kvreport.put(view.requests, state.requests?.[0] || "");
      shown = PAGE;
      show();
    }

    return { restore };
  }

  kvreport.explore = explore;
})();
