/* The arithmetic of capacity, in the browser: the cache profile and the budget that the dataset was
   made from, evaluated again. tests/site proves it equal to the dataset, row by row. Sizes are whole
   bytes below 2^53, so a double holds them exactly. */
(function (root) {
  "use strict";

  const BEYOND = 2 ** 40;

  /* Bytes of one request of n tokens: constant + sum of rate * ceil(min(n, cap) / step). */
  function requestBytes(constant, terms, n) {
    let bytes = constant;
    for (const [rate, step, cap] of terms) {
      bytes += rate * Math.ceil((cap ? Math.min(n, cap) : n) / step);
    }
    return bytes;
  }

  /* Bytes of one further token at n tokens, block rounding spread evenly. */
  function marginalBytes(terms, n) {
    let bytes = 0;
    for (const [rate, step, cap] of terms) if (!cap || n < cap) bytes += rate / step;
    return roundHalfEven(bytes);
  }

  function roundHalfEven(x) {
    const floor = Math.floor(x);
    const rest = x - floor;
    if (rest !== 0.5) return Math.round(x);
    return floor % 2 === 0 ? floor : floor + 1;
  }

  function freeBytes(pool, block, kept) {
    return Math.max(Math.floor(Math.max(pool, 0) / block) - kept, 0) * block;
  }

  function usersOf(free, request) {
    return request > 0 ? Math.floor(free / request) : BEYOND;
  }

  function longest(free, constant, terms, limit) {
    let low = 0, high = limit;
    while (low < high) {
      const middle = Math.floor((low + high + 1) / 2);
      if (requestBytes(constant, terms, middle) <= free) low = middle; else high = middle - 1;
    }
    return low;
  }

  /* The models of a file of one size only, made to look like those of all sizes. What a field has for
     one model stands in each list at the model's place in site.models. */
  function unpack(site, size, packed) {
    const kinds = 1 + Math.max(...site.gpus.map((gpu) => gpu.kind));
    const none = new Array(kinds).fill(-1);
    const at = (value) => site.sizes.map((one) => (one === size ? value : null));
    const spread = (row) => site.sizes.map((one) => (one === size ? (Array.isArray(row) ? row : new Array(kinds).fill(row)) : none));
    return site.models.map(([slug, name], n) => {
      const each = (group, call) => Object.fromEntries(Object.entries(packed[group]).filter(([, list]) => list[n] !== null || group !== "plan").map(([key, list]) => [key, call(list[n])]));
      return {
        slug, name, id: slug.replace("--", "/"),
        family: packed.family[n], maker: packed.maker[n], kind: packed.kind[n], limit: packed.limit[n], kv: packed.kv[n], aliases: packed.aliases[n],
        weights: each("weights", at), loaded: each("loaded", at), held: each("held", at),
        reserve: packed.reserve.map((list) => at(list[n])), plans: packed.plans[n], plan: each("plan", spread),
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
    const added = model.loaded[weightFormat][size];
    const resident = weights + (Array.isArray(added) ? added[gpu.kind] : added);
    const [reserve, uncertainty] = model.reserve[gpu.reserve][size];
    const layout = model.held[kvFormat][size];
    const [heldConstant, heldTerms, state] = layout.kinds ? layout.kinds[gpu.kind] : layout;
    const pool = Math.max(gpu.memory - resident - reserve, 0);
    const free = freeBytes(pool, block, kept);
    const whole = freeBytes(pool, block, 0);
    return {
      model, gpu, size: site.sizes[size], weightFormat, kvFormat,
      weights, resident, reserve, pool, free, whole, constant, terms, heldConstant, heldTerms, state,
      sure: freeBytes(pool - uncertainty, block, kept),
      top: gpu.usable - weights,
      fitsWeights: resident <= gpu.memory,
      longest: later ? undefined : longest(free, constant, terms, model.limit),
    };
  }

  /* The answer of a configuration at a context. */
  function answer(config, context) {
    const request = requestBytes(config.constant, config.terms, context);
    const own = requestBytes(config.heldConstant, config.heldTerms, context);
    let verdict = "fits";
    if (!config.fitsWeights) verdict = "weights_exceed_memory";
    else if (context > config.model.limit) verdict = "context_exceeds_model";
    else if (request > config.free) verdict = "cache_exceeds_pool";
    else if (request > config.sure) verdict = "tight";
    return {
      // The engine's printed figure rounded down; 0 where it would refuse to start.
      users: request > config.free ? 0 : usersOf(config.whole, request),
      ceiling: usersOf(Math.max(config.top, 0), own),
      request, verdict,
      token: marginalBytes(config.heldTerms, context),
    };
  }

  /* Batch sizes that vLLM captures graphs of, up to a largest: 1, 2, 4, then by 8 to 256, then by 16. */
  function capturedSizes(largest) {
    return [1, 2, 4].filter((size) => size <= largest).length
      + Math.floor(Math.min(largest, 256) / 8) + Math.floor(Math.max(largest - 256, 0) / 16);
  }

  /* Graphs: pieces for every batch size, and whole ones for those that decode. */
  function capturedGraphs(rows, tokens) {
    return capturedSizes(Math.min(2 * rows, 512, tokens)) + capturedSizes(Math.min(rows, 512, tokens));
  }

  const MULTIPROCESSORS = 132;
  const BUFFERED_ROWS = 8;

  /* The reserve under given scheduler sizes: activations, what lies outside the framework, graphs. */
  function reserveAt(rates, tokens, rows, { eager = false, own = false, outside = [false, 0], context = 0 } = {}) {
    const [forward, stream, expanded, experts, kept, streams, row, buffer, encoding, image, states, keys, index,
      framework, linked, graph] = rates;
    const asked = Math.min(rows, tokens);
    const passed = Math.max(forward * tokens, stream * tokens + expanded) + index;
    const buffered = asked >= BUFFERED_ROWS ? buffer * Math.min(asked, MULTIPROCESSORS) : 0;
    const sampled = row * asked + buffered + kept * tokens;
    const encoded = Math.max(encoding, image * tokens) + states * asked;
    const workspace = Math.max(own ? 0 : experts * tokens, keys * context);
    const activations = Math.max(passed, sampled, encoded) + workspace + streams * tokens;
    const [multicast, shared] = outside;
    return roundHalfEven(activations) + roundHalfEven(framework + (multicast ? linked : 0) + shared)
      + roundHalfEven(eager ? 0 : graph * capturedGraphs(rows, tokens));
  }

  /* Terms of a plan with other steps than it supposes: windows hold the tokens in flight besides theirs. */
  function inFlight(terms, further) {
    return terms.map(([rate, step, cap]) => [rate, step, cap ? cap + further : cap]);
  }

  const api = { reserveAt, inFlight, unpack, requestBytes, marginalBytes, freeBytes, longest, configure, answer, BEYOND };
  if (typeof module === "object" && module.exports) module.exports = api;
  else root.kvCapacity = api;
})(typeof globalThis === "object" ? globalThis : this);
