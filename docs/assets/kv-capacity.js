/* Capacity from the published files, in the browser: reads a model's JSON, asks the generated formulas
   (kv-kernel.js), returns plain values. No page here. Sizes are whole bytes below 2^53, so a double
   holds them exactly; tests hold every answer equal to the dataset, row by row. */
(function (root) {
  "use strict";

  const kernel = root.kvKernel;

  /* The models of a file of one size only, made to look like those of all sizes. What a field has for
     one model stands in each list at the model's place in site.models. */
  function unpack(site, size, packed) {
    const kinds = 1 + Math.max(...site.gpus.map((gpu) => gpu.kind));
    const none = new Array(kinds).fill(-1);
    const at = (value) => site.sizes.map((one) => (one === size ? value : null));
    const spread = (row) =>
      site.sizes.map((
        one,
      ) => (one === size ? (Array.isArray(row) ? row : new Array(kinds).fill(row)) : none));
    return site.models.map(([slug, name], n) => {
      const each = (group, call) =>
        Object.fromEntries(
          Object.entries(packed[group]).filter(([, list]) => list[n] !== null || group !== "plan").map((
            [key, list],
          ) => [key, call(list[n])]),
        );
      return {
        slug,
        name,
        id: slug.replace("--", "/"),
        family: packed.family[n],
        maker: packed.maker[n],
        kind: packed.kind[n],
        limit: packed.limit[n],
        slots: packed.slots[n],
        kv: packed.kv[n],
        aliases: packed.aliases[n],
        weights: each("weights", at),
        loaded: each("loaded", at),
        held: each("held", at),
        reserve: packed.reserve.map((list) => at(list[n])),
        plans: packed.plans[n],
        plan: each("plan", spread),
      };
    });
  }

  /* One configuration: everything but the context. Null where it cannot be configured.
     site: site.json; model: a model's file; gpu: an entry of site.gpus; size: index into site.sizes;
     later: leave the longest context to be asked for. */
  function configure(site, model, gpu, size, weightFormat, kvFormat, later) {
    const weights = model.weights[weightFormat] && model.weights[weightFormat][size];
    const placed = model.plan[kvFormat];
    const index = placed ? placed[size][gpu.kind] : -1;
    if (weights === null || weights === undefined || index < 0) return null;
    const [block, kept, constant, terms] = model.plans[index];
    const loading = model.loaded[weightFormat][size];
    const added = Array.isArray(loading) ? loading[gpu.kind] : loading;
    if (added === null) return null; // the engine's release refuses these weights on this device
    const resident = weights + added;
    const [reserve, uncertainty] = model.reserve[gpu.reserve][size];
    const layout = model.held[kvFormat][size];
    const [heldConstant, heldTerms, state] = layout.kinds ? layout.kinds[gpu.kind] : layout;
    const left = kernel.poolLeft(gpu.memory, resident, reserve);
    const pool = Math.max(left, 0);
    const free = kernel.freeBytes(pool, block, kept);
    return {
      model,
      gpu,
      size: site.sizes[size],
      weightFormat,
      kvFormat,
      weights,
      resident,
      reserve,
      left,
      pool,
      uncertainty,
      wanted: model.slots ? gpu.step[1] : 0,
      block,
      kept,
      free,
      constant,
      terms,
      heldConstant,
      heldTerms,
      state,
      fitsWeights: resident <= gpu.usable,
      longest: later ? undefined : kernel.longestContext(free, constant, terms, model.limit),
    };
  }

  /* The answer of a configuration at a context. */
  function answer(config, context) {
    const { model, gpu, block, kept, pool } = config;
    const request = kernel.requestBytes(config.constant, config.terms, context);
    const own = kernel.requestBytes(config.heldConstant, config.heldTerms, context);
    const verdict = kernel.verdict(
      gpu.usable,
      config.resident,
      config.left,
      config.uncertainty,
      block,
      kept,
      request,
      config.wanted,
      context,
      model.limit,
    );
    const held = kernel.numRequests(pool, block, kept, request);
    return {
      users: kernel.runningRequests(verdict, held, gpu.step[1]),
      held,
      limitedBy: kernel.words.limit_names[kernel.limitedBy(verdict, held, gpu.step[1])],
      ceiling: kernel.ceilingRequests(gpu.usable, config.weights, own),
      request,
      verdict: kernel.words.verdicts[verdict],
      token: kernel.tokenBytes(config.heldTerms, context),
    };
  }

  /* Whether a configuration's answer at a context is one that serves. */
  function serves(config, context) {
    const { users, verdict } = answer(config, context);
    return users > 0 && kernel.words.serving_verdicts.includes(verdict);
  }

  root.kvCapacity = { unpack, configure, answer, serves };
})(typeof globalThis === "object" ? globalThis : this);
