/* An accelerator's page: which models it serves, in other formats and on other numbers of GPUs. The numbers of all
   models are read, one file for each number of GPUs, when something is changed. Needs kv-result.js, kv-pages.js. */
(function () {
  "use strict";

  const { $, $$, make, load, count, gib, tokens, ignoredNote, result } = kvreport;
  const words = kvKernel.words;
  const FIELDS = "gpu tp weights kv context requests".split(" ");

  function gpuPage(form) {
    const base = new URL(form.dataset.kvBase, location.href);
    const start = JSON.parse($("template.kv-start", form).content.textContent);
    const examples = form.dataset.kvExamples.split(" ").filter(Boolean);
    const root = form.closest(".md-content") || document.body;
    const slots = $$("[data-kv-slot]", root).map((slot) => [slot, Array.from(slot.childNodes)]);
    const early = kvreport.changedEarly(form);
    let site = null, controls = null, state = { ...start }, turn = 0, plots = null;

    const ready = load(new URL("site.json", base)).then((facts) => {
      site = facts;
      controls = kvreport.formOf(form, site);
      for (const field of $$("select, input", form)) {
        field.addEventListener("change", () => {
          const change = controls.change(field.name);
          if (change === null) controls.told.textContent = `“${field.value}” is not understood.`;
          else go({ ...state, ...change });
        });
      }
      $("[data-kv-reset]", form).addEventListener("click", () => go({ ...start }));
      form.addEventListener("submit", (event) => event.preventDefault());
    });

    function go(next) {
      state = next;
      const address = location.pathname + kvState.search(state, start) + location.hash;
      if (address !== location.pathname + location.search + location.hash) {
        history.pushState(history.state, "", address);
      }
      return show([]);
    }

    async function show(ignored) {
      const mine = (turn += 1);
      await ready;
      controls.write(state);
      const printed = kvState.search(state, start) === "";
      $("[data-kv-reset]", form).toggleAttribute("hidden", printed);
      controls.told.replaceChildren(ignoredNote(ignored) || "");
      if (printed) {
        for (const [slot, nodes] of slots) slot.replaceChildren(...nodes);
        kvreport.restoreTable(root);
        plots?.release();
        plots = kvreport.plots(root);
      } else {
        const sizes = kvState.layouts(site, state).map((layout) => layout.tp);
        const matrix = await opened();
        const choice = {
          gpus: [site.gpus.find((one) => one.id === state.gpu)],
          sizes: sizes.map((size) => site.sizes.indexOf(size)),
          forms: [...new Set([site.weight_formats[0].name, state.weights].filter(Boolean))],
          caches: [state.kv || "own"],
        };
        await Promise.all([matrix.need(choice), matrix.bounds(choice)]);
        if (mine !== turn) return;
        fill(sizes.map((size) => [size, matrix.models]));
      }
      root.dataset.kvShown = location.search || "printed";
    }

    /* Every model's numbers, fetched when something is changed. */
    let matrix = null;
    const opened = () => {
      const file = (name) => load(new URL(`explore/${name}.json`, base));
      return matrix ||= file("models").then((common) => kvMatrix.open(file, site, common));
    };

    /* The best deployment of every model: the fewest GPUs that run what is asked, else the most that there are. */
    function answers(bySize) {
      const gpu = site.gpus.find((one) => one.id === state.gpu);
      return site.models.map((_, n) => {
        let found = null;
        for (const [size, models] of bySize) {
          const model = models[n];
          const layout = site.layouts.find((one) => one.devices === size && one.label === `tp${size}`);
          const formats = kvState.weightsOf(site, model);
          const weights = state.weights && formats.includes(state.weights) ? state.weights : formats[0];
          const kv = state.kv || model.kv;
          const deployment = weights && kvCapacity.deploy(site, model, gpu, layout, weights, kv, {});
          if (!deployment) continue;
          const one = result.facts(site, model, gpu, { ...state, model: model.slug, tp: size }, deployment);
          found = one;
          const asked = kvCapacity.serve(deployment, Math.min(one.context, model.limit));
          if (asked.users >= (state.requests || 1)) return { one, serves: true };
        }
        return { one: found, serves: false, model: bySize[0][1][n] };
      });
    }

    function fill(bySize) {
      const all = answers(bySize);
      const serving = all.filter((each) => each.serves).map((each) => each.one);
      const put = (name, ...children) =>
        $$(`[data-kv-slot=${name}]`, root).forEach((place) => place.replaceChildren(...children));
      put("headline", ...result.pieces(sentence(all.length, serving)));
      put("conditions", conditions());
      rows(all, serving);
      const shown = examples.map((slug) => serving.find((one) => one.model.slug === slug)).filter(Boolean);
      const lines = (shown.length ? shown : serving.slice(0, 6)).map((one) => ({
        name: one.deployment.devices > 1 ? `${one.model.name} on ${one.deployment.devices}` : one.model.name,
        points: result.line(one.deployment, site.contexts),
      }));
      const place = $("[data-kv-slot=chart]", root);
      place.replaceChildren(...(lines.length ? [result.figure({ model: { name: site.gpus[0].name } })] : []));
      if (lines.length) kvreport.chart($(".kv-plot", place), { lines, equal: true });
    }

    function sentence(number, serving) {
      const gpu = site.gpus.find((one) => one.id === state.gpu);
      const context = tokens(state.context || kvKernel.USEFUL_TOKENS);
      const size = kvState.hasLayout(state) ? state.tp : null;
      const values = {
        usable: gib(gpu.usable, 1),
        context,
        number: count(serving.length),
        all: count(number),
        devices: size === null
          ? `Up to ${site.sizes[site.sizes.length - 1]} GPUs`
          : kvreport.plural(size, "GPUs"),
        verb: size === 1 ? "serves" : "serve",
      };
      if (!serving.length) return result.fill(words.sentences.gpu_none, values);
      const largest = serving.reduce((a, b) => (b.deployment.weights > a.deployment.weights ? b : a));
      return [
        result.fill(words.sentences.gpu_serves, values),
        result.fill(words.sentences.gpu_largest, {
          model: largest.model.name,
          need: gib(largest.deployment.weights, 1),
        }),
      ].join(" ");
    }

    function conditions() {
      const label = (list, name) => (list.find((one) => one.name === name) || {}).label;
      return [
        `${site.engine.label} with its defaults`,
        state.weights
          ? `weights: ${label(site.weight_formats, state.weights)} where offered`
          : "weights as released",
        state.kv ? `KV cache: ${label(site.kv_formats, state.kv)}` : "KV cache: model default",
        state.requests ? `at least ${count(state.requests)} concurrent requests` : "",
      ].filter(Boolean).join(", ") + ". From formulas, not measured.";
    }

    /* The table of models that serve, in the printed order, and the lists of those that do not. */
    function rows(all, serving) {
      const table = /** @type {HTMLTableElement} */ ($("#users-table", root));
      const list = $(".kv-groups", root);
      if (!table) return;
      kvreport.keepTable(table, list);
      const order = kvreport.printedOrder(root);
      const place = (slug) => (order.has(slug) ? order.get(slug) : Infinity);
      const sorted = [...serving].sort((a, b) => place(a.model.slug) - place(b.model.slug));
      const link = (model) =>
        make("a", { href: new URL(`../../models/${model.slug}/`, location.href).pathname }, model.name);
      table.tBodies[0].replaceChildren(...sorted.map((one) =>
        make(
          "tr",
          { id: `of-${one.model.slug}` },
          make("th", { scope: "row" }, link(one.model), " ", make("small", {}, one.model.maker)),
          make("td", { class: "kv-num" }, String(one.deployment.devices)),
          ...site.contexts.map((context) =>
            result.whyCell(kvCapacity.serve(one.deployment, context), one, context)
          ),
        )
      ));
      if (!list) return;
      const groups = new Map();
      for (const { one, serves, model } of all) {
        if (serves) continue;
        const asked = one ? Math.min(one.context, one.model.limit) : 0;
        const [reason, note] = kvreport.whyNot(one ? one.gpu : null, one ? [one.deployment] : [], asked);
        groups.set(reason, [...(groups.get(reason) || []), [one ? one.model : model, note, one]]);
      }
      list.replaceChildren(...[...groups].flatMap(([reason, members]) => [
        make("dt", {}, reason, " ", make("small", {}, `(${count(members.length)})`)),
        make(
          "dd",
          {},
          ...members.flatMap(([model, note, one], n) => [
            n ? ", " : "",
            make(
              "span",
              { id: `of-${model.slug}` },
              link(model),
              " ",
              note && one
                ? make("button", {
                  type: "button",
                  class: "kv-whybutton",
                  onclick: () => result.why(one, one.context),
                }, note)
                : "",
            ),
          ]),
        ),
      ]));
    }

    async function restore() {
      await ready;
      const { state: asked, ignored } = kvState.read(site, FIELDS, ["name"]);
      const touched = turn === 0 ? early() : [];
      state = { ...start, ...asked, gpu: start.gpu };
      if (touched.length) go(Object.assign({ ...state }, ...touched.map((name) => controls.change(name))));
      else await show(ignored);
    }
    restore();
    return { restore: () => restore(), release: () => plots?.release() };
  }

  Object.assign(kvreport, { gpuPage });
})();
