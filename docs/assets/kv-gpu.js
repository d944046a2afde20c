/* An accelerator's page: which models it serves, in other formats and on other numbers of GPUs. The numbers of all
   models are read, one file for each number of GPUs, when something is changed. Needs kv-result.js, kv-form.js, kv-rows.js. */
(function () {
  "use strict";

  const { $, $$, make, load, count, gib, tokens, ignoredNote, result } = kvreport;
  const words = kvKernel.words;
  const FIELDS = "gpu tp weights kv engine context requests share batched seqs eager".split(" ");
  const SETTINGS = ["batched", "seqs", "eager"]; /* what changes the reserve */

  function gpuPage(form) {
    const base = new URL(form.dataset.kvBase, location.href);
    const start = JSON.parse($("template.kv-start", form).content.textContent);
    const examples = form.dataset.kvExamples.split(" ").filter(Boolean);
    const root = form.closest(".md-content") || document.body;
    const slots = $$("[data-kv-slot]", root).map((slot) => [slot, Array.from(slot.childNodes)]);
    const early = kvreport.changedEarly(form);
    const caseOf = (link) => {
      const devices = Number($("td", link.closest("tr") || link)?.textContent) || "fewest";
      return { ...state, tp: devices, context: contextAsked() };
    };
    for (const place of $$("#users-table, .kv-groups", root)) kvreport.carry(place, caseOf);
    let site = null, controls = null, state = { ...start }, turn = 0, plots = null;

    const ready = kvreport.facts(base).then((found) => {
      site = found;
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
      const search = kvState.search(state, start);
      const asked = new URLSearchParams(location.search).get("name"); // the filter of the table
      const name = asked ? `${search ? "&" : "?"}name=${encodeURIComponent(asked).replace(/%20/g, "+")}` : "";
      kvreport.moveTo(search + name);
      return show([]);
    }

    async function show(ignored) {
      const mine = (turn += 1);
      kvreport.busy();
      await ready;
      controls.write(state);
      const printed = kvState.search(state, start) === "";
      $("[data-kv-reset]", form).toggleAttribute("hidden", printed);
      controls.told.replaceChildren(ignoredNote(ignored) || "");
      if (printed) {
        for (const [slot, nodes] of slots) slot.replaceChildren(...nodes);
        result.titled(root, true);
        kvreport.restoreTable(root);
        plots?.release();
        plots = kvreport.plots(root);
        openers();
        kvreport.whole($("#users-table", root)).then(openers);
      } else {
        try {
          const sizes = kvState.layouts(site, state).map((layout) => layout.tp);
          const matrix = await opened();
          const choice = {
            gpus: [here().gpus.find((one) => one.id === state.gpu)],
            sizes: sizes.map((size) => site.sizes.indexOf(size)),
            forms: [
              "own",
              ...(state.weights && state.weights !== site.weight_formats[0].name ? [state.weights] : []),
            ],
            caches: [state.kv || "own"],
          };
          // What the architecture needs by itself is asked for where it is the answer.
          await Promise.all([matrix.need(choice), state.engine === "ceiling" && matrix.bounds(choice)]);
          if (mine !== turn) return;
          asked = kvreport.settled(here(), state);
          controls.told.replaceChildren(...kvreport.leftOut(here(), state, asked, ignored));
          await kvreport.pause(); // the page says that it computes
          if (mine !== turn) return;
          const wanted = () => mine === turn;
          const all = await kvreport.inSlices(answers(sizes, matrix.models), wanted);
          const made = all && await kvreport.inSlices(nodes(all), wanted);
          if (!made) return;
          await fill(all, matrix.models, made, wanted);
          if (!wanted()) return;
        } catch (error) {
          if (mine !== turn) return;
          controls.told.textContent = `The numbers of this engine could not be read (${error.message}).`;
          for (const [slot] of slots) slot.replaceChildren();
          rows([[], []]);
        }
      }
      kvreport.busy(false);
      root.dataset.kvShown = location.search || "printed";
    }

    /* Every model's numbers, fetched when something is changed: those of the engine that the state names. */
    let matrix = null, shown = null, asked = state;
    const here = () => (shown ? shown.site : site);
    async function opened() {
      const file = (name) => load(new URL(`explore/${name}.json`, base));
      matrix ||= file("models").then((common) => kvMatrix.open(file, site, common));
      const own = await matrix;
      const other = state.engine && state.engine !== "ceiling" && state.engine !== site.engine.name;
      if (other) shown = await own.under(state.engine);
      else shown = SETTINGS.some((name) => state[name]) ? await own.under(site.engine.name) : own;
      return shown;
    }

    /* Explain a printed cell, on its row's number of GPUs; a name below the table has none, and is tried on the most. */
    const explain = (place, context) =>
      kvreport.whyOf(base, {
        ...state,
        model: place.id.replace(/^of-/, ""),
        tp: context ? Number($("td", place).textContent) : site.sizes.at(-1),
        context: context || kvKernel.USEFUL_TOKENS,
      });
    const openers = () => kvreport.openers(root, site.contexts, explain);

    /* The context at which a model is listed. The table for the page's own context has the rows that are printed: a model
       with a shorter limit is listed for what its limit allows, and not counted. */
    const listedAt = (model) =>
      contextAsked() === start.context ? Math.min(contextAsked(), model.limit) : contextAsked();
    const covers = (model) => model.limit >= contextAsked();

    /* The best deployment of every model: the fewest GPUs that run what is asked, else the most that there are. A model
       serves a context that it supports, and is counted in the formats that the sentence names: as kvreport.publish.counts,
       where the files have the row. */
    function* answers(sizes, models) {
      const site = here();
      const gpu = site.gpus.find((one) => one.id === state.gpu);
      const run = new Map(models.map((model) => [model.slug, model]));
      const answerOf = ([slug, name]) => {
        const model = run.get(slug);
        if (!model) return { one: null, serves: false, counted: false, model: { slug, name } };
        let found = null, counted = false;
        for (const size of sizes) {
          const layout = site.layouts.find((one) => one.devices === size && one.label === `tp${size}`);
          const formats = kvState.weightsOf(site, model);
          const own = formats.includes(model.form) ? model.form : formats[0];
          const weights = state.weights && formats.includes(state.weights) ? state.weights : own;
          const kv = state.kv || kvState.kvOf(model, gpu);
          const options = kvState.asked(asked);
          const deployment = weights && kvCapacity.deploy(site, model, gpu, layout, weights, kv, options);
          if (!deployment) continue;
          const one = result.facts(
            site,
            model,
            gpu,
            { ...asked, context: listedAt(model), model: model.slug, tp: size },
            deployment,
          );
          found = one;
          counted = covers(model) && (weights === site.weight_formats[0].name || weights === state.weights);
          const { answer } = one;
          if (kvMatrix.serves(answer) && answer.users >= (state.requests || 1)) {
            return { one, serves: true, counted, model };
          }
        }
        return { one: found, serves: false, counted, model };
      };
      const all = [];
      for (const named of site.models) {
        all.push(answerOf(named));
        yield;
      }
      return all;
    }

    async function fill(all, models, made, wanted) {
      const serving = all.filter((each) => each.serves).map((each) => each.one);
      const put = (name, ...children) =>
        $$(`[data-kv-slot=${name}]`, root).forEach((place) =>
          place.replaceChildren(...children.filter(Boolean))
        );
      const gpu = here().gpus.find((one) => one.id === state.gpu);
      const published = models.some((model) => kvCapacity.isPublished(model, gpu));
      put("headline", ...result.pieces(sentence(all, published)));
      result.titled(root, false, $("h1", root)?.textContent.trim());
      put("conditions", conditions(all));
      put("confirmed", published && result.confirmed({ site, state }));
      rows(made);
      await kvreport.pause();
      if (!wanted()) return;
      const shown = examples.map((slug) => serving.find((one) => one.model.slug === slug)).filter(Boolean);
      const lines = (shown.length ? shown : serving.slice(0, 6)).map((one) => ({
        name: one.deployment.devices > 1
          ? `${one.model.name} (${one.deployment.devices} GPUs)`
          : one.model.name,
        points: result.line(one.deployment, site.contexts),
      }));
      const place = $("[data-kv-slot=chart]", root);
      place.replaceChildren(...(lines.length ? [result.figure({ model: gpu }, null, "model")] : []));
      if (lines.length) kvreport.chart($(".kv-plot", place), { lines, equal: true, at: contextAsked() });
    }

    const contextAsked = () => state.context || kvKernel.USEFUL_TOKENS;

    function sentence(all, published) {
      const gpu = site.gpus.find((one) => one.id === state.gpu);
      const size = kvState.hasLayout(state) ? state.tp : null;
      const counted = all.filter((each) => each.serves && each.counted).map((each) => each.model);
      const below = all.filter(({ model }) => model.limit < contextAsked()).length;
      const values = {
        usable: gib(gpu.usable, 1),
        context: tokens(contextAsked()),
        number: count(counted.length),
        all: count(all.length),
        form: asReleased() ? "as released" : `in ${weightsLabel()} where offered`,
        devices: size === null
          ? `Up to ${site.sizes[site.sizes.length - 1]} GPUs`
          : kvreport.plural(size, "GPU|GPUs"),
        verb: size === 1 ? "serves" : "serve",
      };
      if (!published) {
        return result.fill(words.sentences.gpu_not_published, {
          engine: here().engine.label,
          device: gpu.name,
        });
      }
      const largest = counted.reduce((a, b) => (a && a.parameters >= b.parameters ? a : b), null);
      const say = (name, more = {}) => result.fill(words.sentences[name], { ...values, ...more });
      return [
        say("gpu_usable"),
        say(largest ? "gpu_serves" : "gpu_none"),
        largest && say("gpu_largest", {
          model: largest.name,
          parameters: kvreport.parametersText(largest.parameters),
        }),
        below && say("gpu_below", { number: count(below) }),
      ].filter(Boolean).join(" ");
    }

    const asReleased = () => !state.weights || state.weights === site.weight_formats[0].name;
    const weightsLabel = () => site.weight_formats.find((one) => one.name === state.weights)?.label;

    function conditions(all) {
      const unread = all.filter((each) => each.serves && !each.counted && covers(each.model)).length;
      const models = kvreport.plural(unread, "model|models");
      const label = (list, name) => (list.find((one) => one.name === name) || {}).label;
      const settings = result.settings(asked);
      const engine = state.engine === "ceiling" ? "no engine overhead" : here().engine.label;
      return "Computed, not measured, for " + [
        settings.length || asked.engine === "ceiling" ? engine : `${engine} with its defaults`,
        ...settings,
        state.weights && state.weights !== "released"
          ? `weights: ${label(site.weight_formats, state.weights)} where offered`
          : "weights as released",
        state.kv ? `KV cache: ${label(site.kv_formats, state.kv)}` : "KV cache: model default",
        state.requests ? `at least ${count(state.requests)} concurrent requests` : "",
      ].filter(Boolean).join(", ") + "." +
        (unread ? ` ${result.fill(words.sentences.gpu_unread, { models })}` : "");
    }

    /* The newest release first, as printed. */
    const ordered = (a, b) => (a < b ? -1 : Number(a > b));
    const byRelease = ({ model: a }, { model: b }) =>
      ordered(b.release || "", a.release || "") || ordered(b.name, a.name);

    /* The rows of models that serve, the newest first, and the lists of those that do not; made before they are put in
       the page, row by row: all at once they block a phone for half a second. */
    function* nodes(all) {
      const sorted = all.filter((each) => each.serves).map((each) => each.one).sort(byRelease);
      const link = (model) =>
        make("a", { href: new URL(`../../models/${model.slug}/`, location.href).pathname }, model.name);
      const reads = ({ inputs }) => inputs.split("|").map((one) => one === "text" ? "" : `, ${one}`).join("");
      const taken = ({ model, deployment: { weightFormat } }) => {
        const [own] = site.weight_formats;
        if (weightFormat === own.name && model.by_name) return `, ${words.sentences.weights_by_name}`;
        if (weightFormat === own.name || weightFormat === state.weights) return "";
        const { label } = site.weight_formats.find((form) => form.name === weightFormat);
        return `, ${label.split(" (")[0]} weights assumed`;
      };
      const line = (one) =>
        make(
          "tr",
          { id: `of-${one.model.slug}` },
          make(
            "th",
            { scope: "row" },
            link(one.model),
            " ",
            make("small", {}, one.model.maker + reads(one.model) + taken(one)),
          ),
          make("td", { class: "kv-num" }, String(one.deployment.devices)),
          ...site.contexts.map((context) =>
            result.whyCell(kvCapacity.serve(one.deployment, context), one, context)
          ),
        );
      const lines = [];
      for (const one of sorted) {
        lines.push(line(one));
        yield;
      }
      const gpu = here().gpus.find((one) => one.id === state.gpu);
      const groups = new Map();
      for (const { one, serves, model } of all) {
        if (serves) continue;
        const published = !model?.plan || kvCapacity.isPublished(model, gpu);
        const possible = one ? [one.deployment] : [];
        const [reason, note] = kvreport.whyNot(
          one?.gpu,
          possible,
          one ? one.context : contextAsked(),
          published,
        );
        yield;
        const named = one ? one.model : model, beyond = one?.answer.verdict === "context_exceeds_model";
        const why = one && !beyond && (() => result.why(one, one.context));
        groups.set(reason, [...(groups.get(reason) || []), [
          `of-${named.slug}`,
          link(named),
          one && note,
          why,
        ]]);
      }
      return [lines, kvreport.groupNodes([...groups])];
    }

    function rows([lines, groups]) {
      const table = /** @type {HTMLTableElement} */ ($("#users-table", root));
      const list = $(".kv-groups", root);
      if (!table) return;
      kvreport.keepTable(table, list);
      const devices = kvState.hasLayout(state)
        ? kvreport.plural(state.tp, "GPU|GPUs")
        : words.captions.fewest;
      const which = state.weights && state.weights !== "released" ? "devices_models" : "devices_released";
      kvreport.captioned(table, result.fill(words.captions[which], { devices }));
      kvreport.putRows(table, lines);
      if (lines.length) table.closest(".kv-served")?.removeAttribute("hidden");
      kvreport.putGroups(list, groups);
    }

    async function restore() {
      await ready;
      const { state: asked, ignored } = kvState.read(site, FIELDS, ["name"]);
      const touched = turn === 0 ? early() : [];
      state = { ...start, ...asked, gpu: start.gpu };
      if (touched.length) go(Object.assign({ ...state }, ...touched.map((name) => controls.change(name))));
      else await show(ignored);
    }
    restore().catch(kvreport.unloaded);
    return { restore: () => restore(), release: () => plots?.release() };
  }

  Object.assign(kvreport, { gpuPage });
})();
