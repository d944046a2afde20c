/* Questions that follow a reader's case. The page is printed for one case, and each value carries the expression that
   gave it. When the reader chooses another model, accelerator or context, the same expressions are computed for it,
   with the generated formulas. Needs kv-kernel.js, kv-lessons.js, kv-capacity.js, kv-state.js, kv-picker.js. */
(function () {
  "use strict";

  const { $, $$, load, plainName, tokens, count, fixed, onDevices, ignoredNote } = kvreport;
  const FIELDS = "model gpu tp weights context requests".split(" ");
  const LAYOUT = "tp pp dp ep dcp nodes".split(" ");
  const UNITS = {
    KiB: 2 ** 10,
    MiB: 2 ** 20,
    GiB: 2 ** 30,
    TiB: 2 ** 40,
    KB: 1e3,
    MB: 1e6,
    GB: 1e9,
    TB: 1e12,
    K: 1024,
  };
  const FAR = 2 ** 29;
  const NONE = "—";

  /* What cannot be computed, in words that stand on the page in place of a number. */
  class NoAnswer extends Error {}

  /* --- facts, fetched once ------------------------------------------------------------------------- */

  /* The names of engines and the words that an expression uses. */
  function uses(tree, found) {
    if (!Array.isArray(tree)) return;
    if (tree[0] === "()") {
      found.words.add(tree[1]);
      if (tree[3].engine) found.engines.add(tree[3].engine[1]);
      if (tree[3].kv) found.kvs.add(tree[3].kv[1]);
      for (const one of [...tree[2], ...Object.values(tree[3])]) uses(one, found);
    } else tree.slice(1).forEach((one) => uses(one, found));
  }

  const EXTRA = new Set(
    ("layers growing_layers heads kv_heads draft_weights component image_side image_tokens loaded " +
      "slot_context slot_free slot_weights slot_beside slot_memory slot_experts").split(" "),
  );
  const TIMED = new Set(["decode_time", "prefill_time", "bandwidth", "peak"]);

  /* Everything that a page's expressions need for a model: the site, the model, and under each engine the same. */
  async function factsFor(base, slug, used) {
    const at = (path) => load(new URL(path, base));
    const site = await kvreport.facts(base);
    const model = await at(`models/${slug}.json`);
    const facts = { site, model, engines: new Map() };
    const listed = site.kv_formats.map((one) => one.name);
    const jobs = [];
    if ([...used.words].some((word) => EXTRA.has(word)) || [...used.kvs].some((kv) => !listed.includes(kv))) {
      jobs.push(at(`questions/${slug}.json`).then((found) => (facts.extra = found)));
    }
    if ([...used.words].some((word) => word.startsWith("slot_"))) {
      jobs.push(at("questions.json").then((found) => (facts.machines = found)));
    }
    if ([...used.words].some((word) => TIMED.has(word))) {
      jobs.push(at("peaks.json").then((found) => (facts.peaks = found)));
      jobs.push(at(`times/${slug}.json`).then((found) => (facts.times = found)));
    }
    for (const name of used.engines) {
      if (name === site.engine.name || name === "ceiling" || !site.engines.some((one) => one.name === name)) {
        continue;
      }
      jobs.push(
        Promise.all([at(`engines/${name}.json`), at(`engines/${name}/${slug}.json`).catch(() => null)]).then(
          ([engine, own]) =>
            facts.engines.set(name, {
              site: kvCapacity.underEngine(site, engine),
              model: own && kvCapacity.decided(model, own),
            }),
        ),
      );
    }
    await Promise.all(jobs);
    return facts;
  }

  /* --- the words of expressions, as kvreport.book.quantities ------------------------------------------- */

  /* A vocabulary for one case. */
  function vocabulary(facts, gpuId) {
    const { site, model, extra } = facts;
    const needed = (value, words) => {
      if (value === undefined || value === null) throw new NoAnswer(words);
      return value;
    };
    const sizeOf = (tp = 1) => {
      const place = site.sizes.indexOf(tp);
      if (place < 0) throw new NoAnswer("not published for this number of GPUs");
      return place;
    };

    /* A model's facts with the KV formats that the matrix leaves out. */
    const widened = (found, kv) =>
      kv && !(kv in found.plan) && extra
        ? { ...found, plans: extra.plans, plan: extra.plan, held: extra.held }
        : found;

    function deployment(options) {
      const name = options.engine || site.engine.name;
      const here = name === site.engine.name || name === "ceiling" ? facts : facts.engines.get(name);
      if (!here) throw new NoAnswer("this page has no numbers for this engine");
      let own = widened(needed(here.model, "the engine does not run this model"), options.kv);
      const gpu = needed(
        here.site.gpus.find((one) => one.id === gpuId),
        "the engine does not support this accelerator",
      );
      if (options.images === 0 && extra.text !== null) {
        // A server of text only loads no encoders, and measures none.
        if (here !== facts) throw new NoAnswer("this page has no numbers without images for this engine");
        const { text } = extra;
        own = {
          ...own,
          ...text,
          weights: { ...own.weights, ...text.weights },
          reserve: null,
          following: null,
        };
      }
      if (options.max_loras) own = withAdapters(own, options);
      const forms = kvState.weightsOf(here.site, own);
      const asked = options.weights || (forms.includes(own.form) ? own.form : forms[0]);
      if (!forms.includes(asked)) throw new NoAnswer("this page has no numbers for these weights");
      const kv = options.kv || kvState.kvOf(own, gpu);
      if (!own.plan[kv]) throw new NoAnswer("this model does not support this KV format");
      const state = {
        context: options.tokens || 8192,
        tp: options.tp || 1,
        pp: options.pp,
        dp: options.dp,
        ep: options.ep,
        dcp: options.dcp,
        share: options.utilization,
        batched: options.max_batched_tokens,
        seqs: options.max_seqs,
        eager: options.eager,
        adapted: Boolean(options.max_loras),
        engine: name,
        weights: asked,
        kv,
      };
      const found = kvState.deployments(here.site, own, gpu, state)[0];
      return needed(found, "not possible, or not published for the browser");
    }

    function withAdapters(own, options) {
      const added = options.max_loras * (options.max_lora_rank || 16) * needed(extra, "not published").lora[
        sizeOf(options.tp)
      ];
      const more = (one) => (Array.isArray(one) ? one.map(more) : one === null ? null : one + added);
      const loaded = Object.fromEntries(
        Object.entries(own.loaded).map(([form, all]) => [form, all.map(more)]),
      );
      return { ...own, loaded };
    }

    const answer = (options) => {
      const found = deployment(options);
      return [found, kvCapacity.serve(found, options.tokens || 8192)];
    };

    /* [constant, terms] of what the architecture needs. */
    function held(kv, tp) {
      const name = kv || model.kv;
      const all = needed(widened(model, name).held[name], "this model does not support this KV format");
      const one = needed(all[sizeOf(tp)], "this model cannot be divided in this way");
      const gpu = site.gpus.find((each) => each.id === gpuId);
      return one.kinds ? one.kinds[gpu ? gpu.kind : 0] : one;
    }

    function step(options) {
      const forms = kvState.weightsOf(site, model);
      const form = options.weights || (forms.includes(model.form) ? model.form : forms[0]);
      const times = needed(facts.times, "no times are published for this model");
      const place = sizeOf(options.tp);
      if (!times.weights[form] || !times.weights[form][place]) {
        throw new NoAnswer("this page has no times for these weights");
      }
      const kv = options.kv || model.kv;
      return kvCapacity.demandOf(times, facts.peaks.gpus[gpuId], form, kv, place, options.tp || 1);
    }

    /* Pixels per side of the square of an image that becomes one token. */
    const imageSide = () =>
      needed(extra.image_side, "the tensors of this model do not state the pixels of an image token");

    const known = (seconds) => {
      if (!Number.isFinite(seconds)) throw new NoAnswer("no rate of this accelerator is published");
      return seconds;
    };
    const home = (cache) => {
      const own = needed(extra.home, "llama.cpp has no layout of this model here");
      return cache === "q8_0"
        ? { ...own, ...needed(own.quantized, "llama.cpp has no such cache of it") }
        : own;
    };
    const room = () => {
      const gpu = site.gpus.find((one) => one.id === gpuId);
      return gpu.usable - needed(facts.machines.backends[gpuId], "not known for this machine");
    };

    /* True where the processor has no memory that the device cannot use. */
    const oneMemory = () => facts.machines.one_memory.includes(gpuId);
    const nextToWeights = (cache) => {
      const { beside, host, metal } = home(cache);
      const scratch = facts.machines.metal.includes(gpuId) ? metal : beside.map(() => 0);
      return beside.map((size, n) => size + scratch[n] + (oneMemory() ? host[n] : 0));
    };

    /* The first tabled context that is not shorter. */
    const placeOf = (contexts, n) => Math.min(kvLessons.sizesWithin(contexts, n - 1), contexts.length - 1);

    return {
      fits: (options) => answer(options)[1].held,
      runs: (options) => answer(options)[1].users,
      request: (options) => answer(options)[1].request,
      shortfall: (options) => answer(options)[1].short,
      pool: (options) => {
        const found = deployment(options);
        return found.ceiling ? kvKernel.poolBytes(found.gpu.usable, found.weights, 0) : found.pool;
      },
      reserved: (options) => deployment(options).reserve,
      uncertainty: (options) => deployment(options).uncertainty,
      budget_weights: (options) => deployment(options).resident,
      activations: (options) =>
        needed(kvCapacity.reserveParts(deployment(options)), "not listed by this engine").activations,
      longest: (options) => deployment(options).longest,
      share: () => site.engine.utilization,
      state_slots: (options) => {
        const { pool, block } = deployment(options);
        return kvKernel.wholeBlocks(pool, block);
      },
      pool_tokens: (options) => {
        const [found, { request }] = answer(options);
        return kvKernel.printedTokens(found.pool, found.block, request, options.tokens || 8192);
      },
      concurrency: (options) => {
        const [found, { request }] = answer(options);
        return kvKernel.concurrency(found.pool, found.block, request);
      },
      loaded: (options) =>
        options.max_loras * (options.max_lora_rank || 16) *
        needed(extra, "not published").lora[sizeOf(options.tp)],
      draft_weights: ({ tp }) =>
        needed(extra.draft[sizeOf(tp)], "the sizes of a draft head for this model are not known"),
      kv_per_token: ({ kv, tp, at }) => kvKernel.tokenBytes(held(kv, tp)[1], at || FAR),
      kv_request: ({ kv, tp, tokens: n }) => kvKernel.requestBytes(held(kv, tp)[0], held(kv, tp)[1], n),
      state: ({ tp }) => held(undefined, tp)[0],
      weights: ({ format, tp }) => {
        const forms = kvState.weightsOf(site, model);
        const name = format || (forms.includes(model.form) ? model.form : forms[0]);
        return needed(
          (model.weights[name] || [])[sizeOf(tp)],
          "this page has no numbers for these weights",
        );
      },
      memory: () => site.gpus.find((one) => one.id === gpuId).usable,
      bandwidth: () => needed(facts.peaks.gpus[gpuId].bytes, "no bandwidth is published"),
      context_limit: () => model.limit,
      parameters: () => model.parameters,
      active_parameters: () => model.active,
      layers: () => extra.layers,
      growing_layers: () => extra.growing,
      heads: () => extra.heads,
      kv_heads: () => needed(extra.kv_heads, "a latent, no KV heads"),
      image_side: imageSide,
      image_tokens: ({ wide, high }) => Math.round(wide / imageSide()) * Math.round(high / imageSide()),
      component: ({ name }) => needed(extra.components[name] || null, `this model has no ${name} encoder`),
      decode_time: (options) =>
        known(kvKernel.decodeSeconds(step(options), options.batch || 1, options.tokens || 1024)),
      prefill_time: (options) =>
        known(kvKernel.prefillSeconds(step(options), options.tokens, options.cached || 0)),
      slot_context: ({ cache }) => {
        const { contexts, weights } = home();
        return kvLessons.contextWithin(contexts, nextToWeights(cache), room() - weights);
      },
      slot_free: ({ tokens: n, cache }) => {
        const { contexts, weights } = home();
        const left = room() - weights - nextToWeights(cache)[placeOf(contexts, n)];
        if (left < 0) throw new NoAnswer("does not fit on the device");
        return left;
      },
      slot_weights: () => home().weights,
      slot_beside: ({ tokens: n, cache }) => home(cache).beside[placeOf(home().contexts, n)],
      slot_memory: ({ tokens: n }) => {
        const { contexts, beside, host, weights } = home();
        const place = placeOf(contexts, n);
        return weights + beside[place] + host[place];
      },
      slot_experts: ({ tokens: n }) => {
        const { contexts, beside, weights, experts } = home();
        const place = Math.max(Math.min(kvLessons.sizesWithin(contexts, n), contexts.length) - 1, 0);
        const moved = kvLessons.layersToMove(weights + beside[place] - room(), experts);
        if (moved && oneMemory()) throw new NoAnswer("one memory: experts on the CPU free none of it");
        if (moved < 0) throw new NoAnswer("too large with all experts on the CPU");
        return moved;
      },
    };
  }

  /* Where a positional argument goes, after the model and the accelerator. */
  const PLACES = {
    kv_per_token: ["kv"],
    kv_request: ["kv"],
    weights: ["format"],
    component: ["name"],
    loaded: ["name"],
  };
  const ABOUT_GPU = new Set(["memory", "bandwidth"]);

  /* The value of an expression; throws NoAnswer where there is none. */
  function value(tree, words, names) {
    if (!Array.isArray(tree)) return tree;
    const [sign, ...rest] = tree;
    if (sign === "'") return rest[0];
    if (sign === "$") return rest[0] in names ? names[rest[0]] : UNITS[rest[0]];
    const of = (one) => value(one, words, names);
    if (sign === "()") {
      const [name, given, named] = rest;
      if (name in MATH) return MATH[name](...given.map(of));
      const options = Object.fromEntries(
        Object.entries(named).map(([key, one]) => [key, of(one) ?? undefined]),
      );
      const own = given.slice(ABOUT_GPU.has(name) ? 1 : 0).filter((one) =>
        one[0] !== "$" || !SUBJECTS.has(one[1])
      );
      own.forEach((one, n) => (options[(PLACES[name] || [])[n]] = of(one) ?? undefined));
      return words[name](options);
    }
    const [a, b] = rest.map(of);
    if (b === undefined) return -a;
    if (sign === "/" && b === 0) throw new NoAnswer("nothing fits");
    return { "+": a + b, "-": a - b, "*": a * b, "/": a / b, "//": Math.floor(a / b), "**": a ** b }[sign];
  }
  const SUBJECTS = new Set(["MODEL", "GPU"]);
  const MATH = {
    min: Math.min,
    max: Math.max,
    floor: Math.floor,
    ceil: Math.ceil,
    round: (x) => Math.round(x),
    sqrt: Math.sqrt,
  };

  /* A value as the page prints it. */
  function shown(found, told) {
    const size = found / told.per;
    const number = fixed(size, told.digits);
    const unit = told.counted && number === "1" ? told.unit.replace(/s$/, "") : told.unit;
    return told.glued ? number + unit : `${number}\u00a0${unit}`;
  }

  /* --- a case ---------------------------------------------------------------------------------------------- */

  /* Places of a page that follow its case: each with the expression of its value, or with the name of what it says. */
  const placesIn = (root) =>
    $$("[data-kv-live], [data-kv-case]", root).map((node) => ({
      node,
      text: node.textContent,
      told: node.dataset.kvLive && JSON.parse(node.dataset.kvLive),
    }));

  const usedBy = (places) => {
    const used = { words: new Set(), engines: new Set(), kvs: new Set() };
    places.forEach((one) => one.told && uses(one.told.x, used));
    return used;
  };

  /* What a case begins with: another model or accelerator gets the fewest GPUs, and weights as released. */
  const initialOf = (start, { model, gpu }) =>
    model === start.model && gpu === start.gpu ? start : { ...start, tp: "fewest", weights: undefined };

  /* The fewest GPUs that hold one request of a case, or the most that there are where none does: [number, whether it does]. */
  function fewestFor({ site, model }, { tp: _, ...asked }) {
    const gpu = site.gpus.find((one) => one.id === asked.gpu);
    const found = kvState.pick(site, model, gpu, { ...asked, requests: undefined });
    return [
      found ? found.layout.tp : 1,
      Boolean(found) && kvCapacity.serves(found, Math.min(asked.context, model.limit)),
    ];
  }

  /* Write the values of a case into places: what its names say, the words of its expressions, and why one has no number. */
  function filled(places, facts, state, size) {
    const { site } = facts, gpu = site.gpus.find((one) => one.id === state.gpu);
    const names = {
      MODEL: facts.model.name,
      GPU: onDevices(size, gpu.short),
      GPUS: size,
      CONTEXT: state.context,
      REQUESTS: state.requests || 1,
      WEIGHTS: state.weights,
    };
    const form = site.weight_formats.find((one) => one.name === state.weights);
    const said = {
      ...names,
      GPUS: String(size),
      CONTEXT: tokens(state.context),
      REQUESTS: count(names.REQUESTS),
      WEIGHTS: form ? form.label : "as released",
    };
    const words = vocabulary(facts, state.gpu);
    let missing = "";
    for (const { node, told } of places) {
      if (!told) {
        node.textContent = said[node.dataset.kvCase];
        continue;
      }
      try {
        node.textContent = shown(value(told.x, words, names), told);
        node.removeAttribute("data-kv-none");
      } catch (error) {
        if (!(error instanceof NoAnswer)) throw error;
        node.textContent = NONE;
        node.dataset.kvNone = missing = error.message;
      }
    }
    return { names, said, words, missing, gpu };
  }

  /* What of a case is the example's, in words, where the question does not say it. */
  const exampleOf = (form, said, names) => {
    const noun = form.dataset.kvCounted.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());
    const words = {
      model: said.MODEL,
      gpu: said.GPU,
      context: `${said.CONTEXT} tokens per request`,
      requests: `${said.REQUESTS} ${noun}`,
    };
    return names.length ? `As in the example: ${names.map((name) => words[name]).join(", ")}. ` : "";
  };

  /* What begins a page's answer to the case of its reader. */
  const ANSWER = /^\s*(In your case|By engine),/;

  const plain = (text) => text.replace(/[ \n]+/g, " ").trim();

  /* The first table that follows its reader's case: the paragraph that says of what it is, and its rows; [] without one. */
  function tabled(page) {
    const table = $$("article table", page).find((one) => $("tbody [data-kv-live]", one));
    const lead = (table?.closest(".md-typeset__scrollwrap, .kv-scroll") || table)?.previousElementSibling;
    return lead?.matches("p")
      ? [lead, ...$$("tbody tr", table).filter((row) => $("[data-kv-live]", row)).slice(0, MOST_ROWS)]
      : [];
  }
  const MOST_ROWS = 5;

  /* The last sentence before a table, without its first words. */
  const leading = ({ textContent }, model) =>
    plain(textContent).split(/(?<=\.) (?=[A-Z])/).filter((one, _, all) =>
      one.includes(model) || !all.some((other) => other.includes(model))
    ).pop().replace(/^The (next )?table (shows|is) /, "")
      .replace(/^./, (one) => one.toUpperCase());

  /* A row in words: what it is of, and each value with the head of its column. */
  function rowText(row) {
    const heads = $$("thead th", row.closest("table")).map(({ textContent }) => plain(textContent));
    const [label, ...values] = [...row.cells].map(({ textContent }) => plain(textContent));
    const what = /^[\d,.]+$/.test(label) ? `${heads[0]} ${label}` : label;
    const named = values.map((one, n) => {
      const told = one === NONE ? "no number" : one;
      return told && (values.length > 1 ? `${heads[n + 1]} ${told}` : told);
    });
    return `${what}: ${named.filter(Boolean).join(", ")}`;
  }

  /* What a page of questions answers to the case that its address says, without sentences that have no number for it;
     "" where it has no such sentence. */
  async function inCase(address, base) {
    const text = await (await fetch(address.pathname)).text();
    const page = new DOMParser().parseFromString(text, "text/html");
    const form = $("form[data-kv-reader]", page);
    const spoken = $$("article p", page).filter(({ textContent }) => ANSWER.test(textContent));
    const own = spoken.length ? spoken : tabled(page);
    if (!form || !own.length) return "";
    const site = await kvreport.facts(base),
      start = JSON.parse($("template.kv-start", form).content.textContent);
    const { state: asked } = kvState.read(site, FIELDS, [], address.search);
    const places = own.flatMap(placesIn);
    const state = { ...initialOf(start, { ...start, ...asked }), ...asked };
    const facts = await factsFor(base, state.model, usedBy(placesIn(page)));
    state.context = Math.min(state.context, facts.model.limit);
    const followed = form.elements.namedItem("tp") ? state.tp : start.tp;
    const size = followed === "fewest" ? fewestFor(facts, state)[0] : followed;
    const { said, missing } = filled(places, facts, state, size);
    const follows = (name) =>
      places.some(({ node, told }) =>
        node.dataset.kvCase === name.toUpperCase() ||
        JSON.stringify(told || "").includes(`"${name.toUpperCase()}"`)
      );
    const taken = Object.keys({ model: 1, gpu: 1, context: 1, requests: 1 }).filter((name) =>
      !(name in asked) && follows(name)
    );
    const sentences = spoken.length
      ? own.flatMap(({ textContent }) => plain(textContent).split(/(?<=\.) (?=[A-Z])/))
      : [`${leading(own[0], said.MODEL)} ${[...new Set(own.slice(1).map(rowText))].join("; ")}.`];
    const none = missing && `No number: ${missing}. `;
    return [...sentences.filter((one) => !one.includes(`${NONE} `)), none, exampleOf(form, said, taken)]
      .filter(Boolean).join(" ").trim();
  }

  /* --- the page ------------------------------------------------------------------------------------------ */

  function reader(form) {
    const base = new URL(form.dataset.kvReader, location.href);
    const start = JSON.parse($("template.kv-start", form).content.textContent);
    const root = form.closest("article") || document.body;
    const told = $("[data-kv-told]", root);
    const printed = placesIn(root), used = usedBy(printed);
    const links = $$("[data-kv-tool], .kv-way", root).map((link) => [
      link,
      link.getAttribute("href"),
      link.textContent,
    ]);
    // What is computed for models that it names, whatever the reader chooses.
    const blocks = $$(".kv-q:not([data-kv-live])", root).filter((one) => /["']/.test(one.title))
      .map((one) => one.closest("table, li, p"));
    const examples = [...new Set(blocks)].filter((block) =>
      block && !$("[data-kv-live], [data-kv-case]", block)
    );
    const commands = $$("p > code", root).filter(({ textContent }) =>
      /^kvreport (estimate|size) /.test(textContent)
    );
    const field = (name) => form.elements.namedItem(name);
    const pickers = {};
    const early = kvreport.changedEarly(form);
    let site = null, state = { ...start }, turn = 0, chosen = new Set(); // fields that the reader chose

    const ready = kvreport.facts(base).then((found) => {
      site = found;
      for (const place of $$("[data-kv-picker]", form)) {
        const name = place.dataset.kvName;
        pickers[name] = kvreport.picker(place, base, (id) => go(sized({ ...state, [name]: id })));
      }
      for (const one of $$("select, input:not([role=combobox])", form)) {
        one.addEventListener("change", () => changed(one.name));
      }
      $("[data-kv-reset]", form).addEventListener("click", () => {
        chosen = new Set();
        go({ ...start });
      });
      form.addEventListener("submit", (event) => event.preventDefault());
    });

    const initial = (next) => initialOf(start, next);
    const sized = (next) => {
      const own = initial(next);
      for (const name of ["tp", "weights"]) if (!chosen.has(name)) next[name] = own[name];
      return next;
    };

    const READ = {
      tp: (text) => (text === "fewest" ? text : Number(text)),
      weights: (text) => (text === field("weights").options[0].value ? null : text),
      context: kvState.tokensOf,
      requests: kvState.tokensOf,
    };

    function changed(name) {
      const text = field(name).value.trim();
      const read = READ[name](text);
      field(name).toggleAttribute("aria-invalid", read === undefined);
      if (read === undefined) {
        told.textContent = `“${text}” is not understood; see the example under the field.`;
        return;
      }
      chosen.add(name);
      go({ ...state, [name]: read === null ? undefined : read });
    }

    function go(next) {
      state = next;
      kvreport.moveTo(kvState.search(state, initial(state)));
      return show([]);
    }

    /* The GPUs chosen; else the fewest that hold one request, or the most that there are where none does. */
    function sizeFor(facts) {
      if (!field("tp")) return start.tp;
      if (state.tp !== "fewest") return state.tp;
      const [size, fits] = fewestFor(facts, state);
      if (!chosen.has("tp")) {
        told.append(
          `For this model and GPU, the page set GPUs to ${
            fits
              ? `the fewest that hold one request: ${size}`
              : `${size}: no number in the list holds one request`
          }. A number that you choose stays. `,
        );
      }
      return size;
    }

    /* A row of an example that says the same as the reader's own row is not shown twice. */
    function hideTwins() {
      const name = (row) => plainName(row.cells[0].textContent.split(",")[0]);
      const values = (row) =>
        [...row.cells].slice(1).map(({ textContent }) => textContent.replace(/\.0+(?!\d)/, ""));
      for (const row of $$("tbody tr", root)) {
        if (!$("[data-kv-case]", row.cells[0])) continue;
        for (const other of $$("tr", row.parentNode)) {
          if (other === row || $("[data-kv-case]", other.cells[0])) continue;
          other.hidden = name(other) === name(row) && values(other).join() === values(row).join();
        }
      }
    }

    /* Mark what does not follow the reader's case, or take the marks away. */
    function markExamples(on) {
      for (const label of $$(".kv-example", root)) label.remove();
      const own = $("[data-kv-tool=model]", root);
      for (const block of examples) {
        block.toggleAttribute("data-kv-of-example", on); // a table with a class has none of the theme's style
        if (!on) continue;
        const label = kvreport.make("strong", { class: "kv-example" }, "Example: ");
        if (block.matches("table")) {
          label.textContent = "Example, not your case. For yours, see ";
          label.append(kvreport.make("a", { href: own.getAttribute("href") }, own.textContent), ".");
          (block.closest(".md-typeset__scrollwrap, .kv-scroll") || block).before(label);
        } else block.prepend(label);
      }
      for (const command of on ? commands : []) {
        command.after(kvreport.make("span", { class: "kv-example" }, " (for the example)"));
      }
      if (on && examples.length) {
        told.append(" What is marked “Example” is for the models that it names, not for yours.");
      }
    }

    async function show(ignored) {
      const mine = (turn += 1);
      kvreport.busy();
      await ready;
      told.replaceChildren(ignoredNote(ignored) || "");
      fill();
      const search = kvState.search(state, initial(state));
      $("[data-kv-reset]", form).toggleAttribute("hidden", search === "");
      if (search === "") {
        markExamples(false);
        for (const { node, text } of printed) node.replaceChildren(text);
        for (const [link, href, text] of links) {
          link.setAttribute("href", href);
          if (link.dataset.kvTool) link.textContent = text;
        }
        return done();
      }
      try {
        const facts = await factsFor(base, state.model, used);
        if (mine !== turn) return;
        compute(facts);
        markExamples(true);
      } catch (error) {
        if (mine !== turn) return;
        told.textContent = `The numbers of this case could not be read (${error.message}).`;
        for (const one of printed) one.node.textContent = NONE;
      }
      done();
    }

    function compute(facts) {
      const size = sizeFor(facts);
      const { names, said, words, missing, gpu } = filled(printed, facts, state, size);
      if (field("requests") && used.words.has("fits")) tooMany(words, names, size);
      if (state.context > facts.model.limit) {
        told.append(`${facts.model.name} supports at most ${tokens(facts.model.limit)} tokens. `);
      }
      told.append(
        exampleOf(form, said, ["context", "requests"].filter((name) => field(name) && !chosen.has(name))),
      );
      if (missing) told.append(`A dash means that there is no number: ${missing}.`);
      follow(facts, gpu, size);
    }

    /* Say first that fewer requests fit than the reader's number, and the replicas for all. */
    function tooMany(words, { GPU, GPUS, CONTEXT, REQUESTS, WEIGHTS }, size) {
      try {
        const fit = words.fits({ tokens: CONTEXT, tp: GPUS, weights: WEIGHTS });
        if (fit >= REQUESTS) return;
        const noun = form.dataset.kvCounted.split(" ").pop().toLowerCase();
        const replicas = Math.ceil(REQUESTS / fit);
        told.append(
          `${count(fit)} of the ${count(REQUESTS)} ${noun} of ${
            tokens(CONTEXT)
          } tokens fit on ${GPU} at the default memory share. ${
            fit ? `All of them need ${count(replicas)} such replicas (${count(replicas * size)} GPUs). ` : ""
          }`,
        );
      } catch (error) {
        if (!(error instanceof NoAnswer)) throw error;
      }
    }

    /* Links to the tools and to the questions before and after keep the case. */
    function follow(facts, gpu, size) {
      const case_ = { ...state, tp: size };
      const { model, gpu: _, ...rest } = case_;
      const onGpu = !$("#kv-gpu", form).closest(".kv-entry").hidden; // a page whose numbers no GPU changes has no field
      const targets = {
        model: [
          `models/${model}/`,
          kvState.search(onGpu ? { ...rest, gpu: gpu.id } : {}),
          onGpu ? `${facts.model.name} on ${onDevices(size, gpu.short)}` : facts.model.name,
        ],
        gpu: [
          `gpus/${gpu.id}/`,
          kvState.search({ context: state.context, weights: state.weights }),
          `Every model on ${gpu.short}`,
        ],
        sizer: [
          "sizer/",
          new URL(
            kvState.sizerAddress({ ...rest, model, gpu: gpu.id, requests: state.requests || 1 }),
            base,
          ).search,
          null,
        ],
      };
      for (const [link, href, text] of links) {
        const target = targets[link.dataset.kvTool];
        if (target) {
          link.setAttribute("href", new URL(`../../${target[0]}`, base).pathname + target[1]);
          link.textContent = target[2] || text;
        } else {
          const own = Object.entries(state).filter(([name]) =>
            chosen.has(name) || /^(model|gpu)$/.test(name)
          );
          link.setAttribute("href", href + kvState.search(Object.fromEntries(own)));
        }
      }
    }

    function fill() {
      if (field("tp")) field("tp").value = String(state.tp || "fewest");
      if (field("weights")) field("weights").value = state.weights || field("weights").options[0].value;
      if (field("context")) kvreport.put(field("context"), tokens(state.context));
      if (field("requests")) kvreport.put(field("requests"), String(state.requests || 1));
      const model = site.models.find(([slug]) => slug === state.model);
      const gpu = site.gpus.find((one) => one.id === state.gpu);
      if (model) pickers.model?.set(model[0], model[1]);
      if (gpu) pickers.gpu?.set(gpu.id, gpu.name);
    }

    const done = () => {
      hideTwins();
      kvreport.busy(false);
      root.dataset.kvShown = location.search || "printed";
    };

    async function restore() {
      await ready;
      const touched = turn === 0 ? early().filter((name) => name in READ) : [];
      const { state: asked, ignored } = kvState.read(site, [...new Set([...FIELDS, ...LAYOUT])]);
      // A page has expressions for tensors alone, and fields for what it computes with: of others it says nothing.
      chosen = new Set(Object.keys(asked).filter((name) => /^(model|gpu)$/.test(name) || field(name)));
      for (const [name, value] of Object.entries(asked)) {
        if (!chosen.has(name) && value !== 1) {
          ignored.push(`${kvState.keyOf(name)}=${value === true ? 1 : value}`);
        }
      }
      state = { ...start };
      for (const name of chosen) state[name] = asked[name];
      state = sized(state);
      if (touched.length) touched.forEach(changed);
      else await show(ignored);
    }

    kvreport.ready = restore();
    kvreport.ready.catch(kvreport.unloaded);
    return { restore };
  }

  Object.assign(kvreport, { reader, questions: { vocabulary, value, shown, factsFor, uses, inCase } });
})();
