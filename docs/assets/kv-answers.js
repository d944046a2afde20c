/* Answers to other questions than the printed one: the switches of a model's page, the form of the
   front page. Needs kv-kernel.js and kv-capacity.js. */
(function () {
  "use strict";

  const {
    $$,
    make,
    count,
    gib,
    plural,
    tokens,
    roughTokens,
    onDevices,
    load,
    usersCell,
    memoryBar,
    readState,
    writeState,
    ignoredNote,
    debounce,
    matches,
  } = kvreport;

  /* --- model pages: other formats, sizes, engines ----------------------------------------------------- */

  function configs(site, model, gpu, weights, kv, sizes) {
    return sizes.map((size) => kvCapacity.configure(site, model, gpu, size, weights, kv)).filter(Boolean);
  }

  function serves(config, model, ceiling) {
    const context = Math.min(kvKernel.USEFUL_TOKENS, model.limit);
    return ceiling ? kvCapacity.answer(config, context).ceiling > 0 : kvCapacity.serves(config, context);
  }

  function modelSwitch(tools) {
    const table = /** @type {HTMLTableElement} */ (document.getElementById("users-table"));
    const said = tools.nextElementSibling;
    const fields = Object.fromEntries($$("select, input", tools).map((field) => [field.name, field]));
    const start = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value]));
    const known = { name: null };
    for (const [name, field] of Object.entries(fields)) {
      if (field.options) {
        known[name] = Array.from(field.options, (option) => option.value);
      }
    }
    let printed = null; /* the rows as they came; kept when they are first rewritten */
    const changed = () => Object.keys(fields).filter((name) => fields[name].value !== start[name]);

    async function show(ignored = []) {
      const differs = changed().filter((name) => name !== "name");
      if (!differs.length) {
        restoreRows();
        said.replaceChildren(...[ignoredNote(ignored)].filter(Boolean));
      } else {
        const base = new URL(tools.dataset.kvSwitch, location.href);
        const [site, model] = await Promise.all([load(new URL("../site.json", base)), load(base)]);
        rewrite(site, model);
        const words = differs.map((name) =>
          `${fields[name].parentElement.firstChild.textContent.trim()} ${
            fields[name].selectedOptions[0].textContent
          }`
        );
        said.replaceChildren(
          `Now: ${words.join("; ")}. `,
          make("button", { type: "button", class: "kv-chip", onclick: reset }, "as printed"),
          ignoredNote(ignored) || "",
        );
      }
      narrow();
    }

    function restoreRows() {
      if (printed) table.tBodies[0].replaceWith(printed.cloneNode(true));
    }

    function reset() {
      for (const name of Object.keys(fields)) fields[name].value = start[name];
      write();
      show();
    }

    function rewrite(site, model) {
      restoreRows();
      printed ||= table.tBodies[0].cloneNode(true);
      const columns = $$("thead th", table).length - 1;
      const contexts = site.contexts.slice(0, columns - 2);
      const gpus = new Map(site.gpus.map((gpu) => [gpu.id, gpu]));
      const ceiling = fields.engine.value === "ceiling";
      const wanted = fields.tp.value === "fewest"
        ? site.sizes.map((_, n) => n)
        : [site.sizes.indexOf(Number(fields.tp.value))];
      for (const row of Array.from(table.tBodies[0].rows)) {
        const gpu = gpus.get(row.id.replace("on-", ""));
        const possible = configs(site, model, gpu, fields.weights.value, fields.kv.value, wanted);
        const config = possible.find((one) => serves(one, model, ceiling)) ||
          (fields.tp.value === "fewest" ? null : possible[0]);
        row.replaceChildren(row.cells[0]);
        if (!config || !config.fitsWeights) row.append(whyNot(site, possible, columns));
        else row.append(...cells(config, contexts, ceiling));
      }
    }

    function cells(config, contexts, ceiling) {
      const answers = contexts.map((context) => kvCapacity.answer(config, context));
      return [
        make("td", { class: "kv-num", "data-value": config.size }, String(config.size)),
        ...answers.map((
          answer,
        ) => (ceiling
          ? usersCell(answer.ceiling, answer.ceiling ? "fits" : "cache_exceeds_pool")
          : usersCell(answer.users, answer.verdict))
        ),
        make("td", {
          class: "kv-num",
          "data-value": config.longest,
          title: `${count(config.longest)} tokens`,
        }, roughTokens(config.longest)),
      ];
    }

    function whyNot(site, possible, columns) {
      const widest = possible[possible.length - 1];
      let words = "not offered: this split or format does not exist here";
      const verdict = widest && kvCapacity.answer(widest, Math.min(...site.contexts)).verdict;
      if (verdict === "weights_exceed_memory") {
        words = `weights: ${gib(widest.weights, 1)} GiB on each of ${widest.size}, and one has ${
          gib(widest.gpu.usable, 1)
        } GiB`;
      } else if (verdict === "max_seqs_exceeds_states") {
        words = "max-num-seqs: more sequences than blocks for their states; lower --max-num-seqs";
      } else if (verdict === "may_fit") {
        words = `may fit on ${widest.size}: short by less than the error of the estimate`;
      } else if (widest) words = `cache: the weights leave no room for one request on each of ${widest.size}`;
      return make("td", { class: "kv-no kv-why", colspan: columns }, words);
    }

    function narrow() {
      const query = fields.name.value;
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        row.hidden = Boolean(query) && !matches(`${row.cells[0].textContent} ${row.id}`.toLowerCase(), query);
        if (!row.hidden) shown += 1;
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
      field.addEventListener(
        "input",
        name === "name"
          ? debounce(() => {
            write(true);
            show();
          }, 80)
          : () => {
            write();
            show();
          },
      );
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
    const known = Object.fromEntries(
      Object.entries(fields).map((
        [name, field],
      ) => [name, Array.from(field.options, (option) => option.value)]),
    );

    async function show(ignored = []) {
      const base = new URL(form.dataset.kvAsk, location.href);
      const [site, model] = await Promise.all([
        load(new URL("site.json", base)),
        load(new URL(`models/${fields.model.value}.json`, base)),
      ]);
      const gpu = site.gpus.find((one) => one.id === fields.gpu.value);
      const context = Number(fields.context.value);
      const asked = Math.min(context, model.limit);
      const possible = configs(site, model, gpu, "released", model.kv, site.sizes.map((_, n) => n));
      const config = possible.find((one) => kvCapacity.serves(one, asked));
      const note = make(
        "p",
        { class: "kv-note" },
        make("a", { href: new URL(`../../models/${model.slug}/#on-${gpu.id}`, base).href }, model.name),
        " on ",
        make("a", { href: new URL(`../../gpus/${gpu.id}/`, base).href }, gpu.name),
        `. ${site.engine.label} with its defaults, weights as released. From formulas, not measured. `,
        make("a", {
          href: new URL(
            `../../sizer/?model=${model.slug}&gpu=${gpu.id}&context=${asked}&prompt=none&output=none`,
            base,
          ).href,
        }, "Size a deployment"),
        ".",
        ignoredNote(ignored) || "",
      );
      box.replaceChildren(
        sentence(site, model, gpu, context, config, possible),
        note,
        ...(config ? [bar(config, asked)] : []),
      );
    }

    function sentence(site, model, gpu, context, config, possible) {
      const big = make("p", { class: "kv-big" });
      if (!config) {
        const widest = possible[possible.length - 1];
        const why = !widest
          ? "it is not offered there"
          : !widest.fitsWeights
          ? `its weights take ${gib(widest.weights, 1)} GiB on each of ${widest.size}`
          : "the weights leave no room for one such request";
        big.append(
          `${model.name} does not serve ${tokens(context)} on up to ${
            site.sizes[site.sizes.length - 1]
          } × ${gpu.short}: ${why}.`,
        );
        return big;
      }
      const answer = kvCapacity.answer(config, Math.min(context, model.limit));
      big.append(
        `${model.name}: `,
        make("strong", {}, plural(answer.users, "users")),
        ` at ${tokens(Math.min(context, model.limit))} on ${onDevices(config.size, gpu.short)}`,
      );
      if (context > model.limit) big.append(`, its own limit: ${tokens(context)} is beyond it`);
      else if (context < model.limit && config.longest < model.limit) {
        big.append(
          "; one request may grow to ",
          make("strong", {}, roughTokens(config.longest)),
          ` of its ${tokens(model.limit)}`,
        );
      } else if (context < model.limit) {
        big.append(
          "; ",
          make("strong", {}, count(kvCapacity.answer(config, model.limit).users)),
          ` at its full ${tokens(model.limit)}`,
        );
      }
      big.append(answer.verdict === "tight" ? ". Tight: less room than the estimate is sure of." : ".");
      return big;
    }

    function bar(config, context) {
      const { users, request } = kvCapacity.answer(config, context);
      const state = Math.min(users * config.state, users * request);
      const used = users * request - state;
      const { usable } = config.gpu;
      const each = config.size > 1 ? `Each of ${config.size} devices` : "One device";
      return memoryBar(
        "Where one device's memory goes",
        [
          ["weights", "weights", config.resident],
          ["cache", "KV cache in use", used],
          ["state", "recurrent state", state],
          ["reserve", "activations and reserve", config.reserve],
          ["free", "left over", usable - config.resident - config.reserve - used - state],
        ],
        usable,
        `${each} with ${plural(users, "users")} of ${tokens(context)} each: ${gib(usable)} GiB usable.`,
      );
    }

    function restore() {
      const { state, ignored } = readState(known);
      for (const name of Object.keys(fields)) fields[name].value = state[name]?.[0] || start[name];
      if (Object.keys(state).length || ignored.length) show(ignored);
      else box.replaceChildren(...printed);
    }
    for (const field of Object.values(fields)) {
      field.addEventListener("change", () => {
        writeState(Object.fromEntries(Object.entries(fields).map(([name, f]) => [name, f.value])));
        show();
      });
    }
    form.addEventListener("submit", (event) => event.preventDefault());
    restore();
    return { restore };
  }

  Object.assign(kvreport, { modelSwitch, ask });
})();
