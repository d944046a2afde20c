/* Capacity from the published files, in the browser: reads a model's JSON, asks the generated formulas
   (kv-kernel.js), returns plain values. No page here. Sizes are whole bytes below 2^53, so a double
   holds them exactly; tests hold every answer equal to the dataset, row by row. */
(function (root) {
  "use strict";

  const kernel = root.kvKernel;

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

  /* A known rate, or NaN: null stands for unknown in JSON. */
  const rate = (value) => (value === null || value === undefined ? NaN : value);

  /**
   * What a step asks of one device: a model's times file for one pair of formats and size, and the
   * device's rates.
   * @returns {Step}
   */
  function stepOf(times, peaks, weightFormat, kvFormat, size, ranks) {
    const [dense, expert, body, head] = times.weights[weightFormat][size];
    /** @returns {Work[]} */
    const work = (operations) =>
      Object.entries(operations).map(([kind, each]) => [each, rate(peaks.rates[kind])]);
    return {
      ranks,
      denseBytes: dense,
      expertBytes: expert,
      experts: times.experts[0],
      expertsPerToken: times.experts[1],
      body: work(body),
      head: work(head),
      reaches: times.reach[kvFormat][size],
      attentionRate: rate(peaks.rates[times.attention[kvFormat]]),
      stateBytes: times.state[size],
      reducedBytes: times.reduced,
      bytesRate: rate(peaks.bytes),
      linkRate: rate(peaks.link),
    };
  }

  root.kvCapacity = { configure, stepOf, answer, serves };
})(typeof globalThis === "object" ? globalThis : this);
