/* The arithmetic of sizing, in the browser: kvreport.accounting.sizing, ranking and roofline over the
   published profiles. A test holds every answer equal to Python's, over many workloads. No page here:
   plain values in, plain values out. Needs kv-capacity.js. */
(function (root) {
  "use strict";

  const capacity = typeof module === "object" && module.exports ? require("./kv-capacity.js") : root.kvCapacity;
  const MAX_REQUESTS = 2 ** 20;
  const GIB = 2 ** 30;
  const EFFICIENCY = 0.6;

  /* --- memory ---------------------------------------------------------------------------------- */

  /* Bytes of a prefix that requests can share: whole blocks of caches that keep every token. */
  function sharedBytes(terms, prefix) {
    let bytes = 0;
    for (const [rate, step, cap] of terms) if (!cap) bytes += rate * Math.floor(prefix / step);
    return bytes;
  }

  /* Requests that one replica holds at their average length; 0 if one of the longest does not fit. */
  function replicaUsers(plan, pool, mean, longest, prefix) {
    const { block, kept, constant, terms } = plan;
    const whole = Math.floor(Math.max(pool, 0) / block) * block;
    const free = Math.max(Math.floor(Math.max(pool, 0) / block) - kept, 0) * block;
    if (free < capacity.requestBytes(constant, terms, longest)) return 0;
    const shared = sharedBytes(terms, prefix);
    const each = capacity.requestBytes(constant, terms, mean) - shared;
    return each ? Math.min(Math.floor(Math.max(whole - shared, 0) / each), MAX_REQUESTS) : MAX_REQUESTS;
  }

  /* The smallest pool for which replicaUsers is `requests`. */
  function poolFor(plan, requests, mean, longest, prefix) {
    const shared = sharedBytes(plan.terms, prefix);
    const each = capacity.requestBytes(plan.constant, plan.terms, mean) - shared;
    const one = capacity.requestBytes(plan.constant, plan.terms, longest);
    return Math.max(requests * each + shared, one + plan.kept * plan.block);
  }

  function utilizationFor(pool, weights, reserve, total) {
    const needed = Math.ceil((pool + weights + reserve) / total * 1000) / 1000;
    return needed <= 1 ? needed : null;
  }

  /* The values of SGLang's --mem-fraction-static that work, or null. */
  function fractionInterval(total, weights, pool, kept) {
    if (kept === null) return null;
    const lowest = Math.ceil((weights + pool) / total * 1000) / 1000;
    const highest = Math.floor((1 - kept / total) * 1000) / 1000;
    return lowest > highest ? null : { lowest, highest };
  }

  /* --- time ------------------------------------------------------------------------------------- */

  /* What a step asks of one device: a model's times file for one pair of formats and size. */
  function demandOf(times, weightFormat, kvFormat, size, ranks) {
    const [dense, expert, operations, head] = times.weights[weightFormat][size];
    return {
      ranks, dense, expert, operations, head, experts: times.experts, reduced: times.reduced,
      reaches: times.reach[kvFormat][size], attention: times.attention[kvFormat], state: times.state[size],
    };
  }

  function weightBytesRead(demand, tokens) {
    const [routed, chosen] = demand.experts;
    if (!routed) return demand.dense;
    const touched = routed * (1 - (1 - chosen / routed) ** tokens);
    return demand.dense + demand.expert * (touched / routed);
  }

  function entries([, , , cap, step, chunked, constant], context) {
    const seen = cap < 0 ? 0 : chunked ? context % cap : cap ? Math.min(context, cap) : context;
    return Math.floor(seen / step) + constant;
  }

  const triangle = (n) => n * (n + 1) / 2;

  function entriesUpTo([, , , cap, step, chunked, constant], tokens) {
    let seen;
    if (cap < 0) seen = 0;
    else if (chunked) seen = Math.floor(tokens / cap) * triangle(cap) + triangle(tokens % cap);
    else if (!cap) seen = triangle(tokens);
    else {
      const inside = Math.min(tokens, cap);
      seen = triangle(inside) + (tokens - inside) * cap;
    }
    return seen / step + tokens * constant;
  }

  /* A known rate, or NaN: null stands for unknown in JSON. */
  const rate = (value) => (value === null || value === undefined ? NaN : value);

  function linkSeconds(demand, peaks, tokens) {
    if (demand.ranks === 1) return 0;
    return 2 * (demand.ranks - 1) / demand.ranks * demand.reduced * tokens / rate(peaks.link);
  }

  function longestOf(memory, compute, link) {
    if (Number.isNaN(memory) && Number.isNaN(compute)) return NaN;
    return Math.max(...[memory, compute, link].filter((value) => !Number.isNaN(value)));
  }

  function operationSeconds(peaks, operations, times) {
    let seconds = 0;
    for (const [kind, each] of Object.entries(operations)) seconds += times * each / rate(peaks.rates[kind]);
    return seconds;
  }

  /* Lower bound of one decode step in seconds; NaN where no rate is known. */
  function decodeSeconds(demand, peaks, batch, context) {
    let cache = 0, attention = demand.state / 2 / 4 * 4;
    for (const reach of demand.reaches) {
      const seen = entries(reach, context);
      cache += reach[0] * seen;
      attention += reach[1] * seen;
    }
    const read = weightBytesRead(demand, batch) + batch * (cache + demand.state);
    const compute = operationSeconds(peaks, demand.operations, batch) + operationSeconds(peaks, demand.head, batch)
      + batch * attention / rate(peaks.rates[demand.attention]);
    return longestOf(read / rate(peaks.bytes), compute, linkSeconds(demand, peaks, batch));
  }

  /* Lower bound of the prefill of one prompt in seconds, after a cached prefix. */
  function prefillSeconds(demand, peaks, prompt, cached) {
    const fresh = Math.max(prompt - cached, 1), end = cached + fresh;
    let attention = fresh * (demand.state / 2 / 4 * 4);
    for (const reach of demand.reaches) attention += reach[2] * (entriesUpTo(reach, end) - entriesUpTo(reach, cached));
    const read = weightBytesRead(demand, fresh) + demand.state;
    const compute = operationSeconds(peaks, demand.operations, fresh) + operationSeconds(peaks, demand.head, 1)
      + attention / rate(peaks.rates[demand.attention]);
    return longestOf(read / rate(peaks.bytes), compute, linkSeconds(demand, peaks, fresh));
  }

  /* The largest batch, up to what memory holds, that meets the time targets. */
  function fastEnough(demand, peaks, work, held) {
    if (work.ttft !== null && !(prefillSeconds(demand, peaks, work.prompt, work.prefix) <= work.ttft * work.efficiency)) return 0;
    if (work.tpot === null) return held;
    const target = work.tpot * work.efficiency;
    let low = 0, high = held;
    while (low < high) {
      const middle = Math.floor((low + high + 1) / 2);
      if (decodeSeconds(demand, peaks, middle, work.mean) <= target) low = middle; else high = middle - 1;
    }
    return low;
  }

  /* --- the workload --------------------------------------------------------------------------------- */

  /* Fill in a workload as kvreport.size does: {work, assumed} or {error}. `asked`: context, average,
     concurrent or users/perMinute/latency, prompt, output, ttft, tpot (seconds), burst, spares, prefix,
     efficiency; null or undefined where nothing is said. */
  function workload(asked) {
    const given = (value) => value !== null && value !== undefined;
    const number = (n) => n.toLocaleString("en-US");
    const fail = (error) => ({ error });
    const assumed = [];
    const rates = [asked.users, asked.perMinute, asked.latency];
    let concurrent = asked.concurrent;
    if (given(concurrent)) {
      if (rates.some(given)) return fail("Give either the requests in flight, or users, requests per minute and latency.");
    } else {
      if (!rates.every(given)) return fail("Give the requests in flight, or users, requests per minute and latency together.");
      if (!(asked.users > 0 && asked.perMinute > 0 && asked.latency > 0)) return fail("Users, requests per minute and latency must be above 0.");
      concurrent = asked.users * asked.perMinute / 60 * asked.latency;
      assumed.push(`Little’s law: ${number(asked.users)} users × ${asked.perMinute} per minute / 60 × ${asked.latency} s = ${concurrent.toFixed(1)} requests in flight`);
    }
    const longest = asked.context;
    if (!(longest >= 1 && longest <= 2 ** 30)) return fail("The longest request must have 1 to 2^30 tokens.");
    const output = given(asked.output) ? asked.output : Math.min(512, Math.max(1, Math.floor(longest / 4)));
    const prompt = given(asked.prompt) ? asked.prompt : longest - output;
    if (!given(asked.output)) assumed.push(`answers of ${number(output)} tokens`);
    if (!given(asked.prompt)) assumed.push(`prompts of ${number(prompt)} tokens, what the answer leaves of the longest request`);
    let mean = asked.average;
    if (!given(mean)) {
      if (given(asked.prompt) && given(asked.output)) {
        mean = prompt + Math.ceil(output / 2);
        assumed.push(`${number(mean)} tokens held on average: the prompt and half of the answer`);
      } else {
        mean = longest;
        assumed.push("every request as long as the longest allowed");
      }
    }
    const work = {
      concurrent, longest, mean, prompt, output,
      ttft: given(asked.ttft) ? asked.ttft : null, tpot: given(asked.tpot) ? asked.tpot : null,
      burst: given(asked.burst) ? asked.burst : 1, spares: asked.spares || 0, prefix: asked.prefix || 0,
      efficiency: given(asked.efficiency) ? asked.efficiency : EFFICIENCY,
    };
    if (!(concurrent > 0 && concurrent <= MAX_REQUESTS)) return fail(`The requests in flight must be above 0 and at most ${number(MAX_REQUESTS)}.`);
    if (!(work.burst >= 1 && work.burst <= 1000)) return fail("A burst is a factor from 1 to 1,000.");
    if (!(work.spares >= 0 && work.spares <= 1000)) return fail("There can be 0 to 1,000 spare replicas.");
    if (!(work.efficiency > 0 && work.efficiency <= 1)) return fail("The share of the roofline is above 0 and at most 1.");
    if ((work.ttft !== null && !(work.ttft > 0)) || (work.tpot !== null && !(work.tpot > 0))) return fail("A time target must be above 0.");
    if (prompt < 1 || output < 1) return fail("Prompt and answer need at least 1 token each.");
    if (prompt + output > longest) return fail(`Prompt and answer, ${number(prompt)} + ${number(output)} tokens, are more than the longest request of ${number(longest)}: shorten one of them or raise the context.`);
    if (!(mean >= 1 && mean <= longest)) return fail(`An average of ${number(mean)} tokens is not possible with a longest request of ${number(longest)}: lower the average or raise the maximum.`);
    if (!(work.prefix >= 0 && work.prefix <= Math.min(prompt, mean))) return fail(`A shared prefix of ${number(work.prefix)} tokens is longer than the prompt or the average request.`);
    if (work.ttft !== null || work.tpot !== null) assumed.push(`servers reach ${Math.round(work.efficiency * 100)} % of the roofline`);
    work.peak = Math.ceil(concurrent * work.burst);
    return { work, assumed };
  }

  /* --- ranking ------------------------------------------------------------------------------------------ */

  /* Deployments that serve the workload, best first, as kvreport.accounting.ranking.rank has them.
     choices: {gpus: ids or null, weights: names, kv: names, sizes: counts or null, available: n or null,
     prices: {id: price} or null}. */
  function rank(site, peaks, model, times, work, choices) {
    const found = [], refused = {}, fastest = { tpot: NaN, ttft: NaN };
    const refuse = (reason) => { refused[reason] = (refused[reason] || 0) + 1; };
    const least = (a, b) => (Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.min(a, b));
    if (work.longest > model.limit) return { deployments: [], refused: { limit: 1 }, fastest };
    for (const gpu of site.gpus) {
      if (choices.gpus && !choices.gpus.includes(gpu.id)) continue;
      const limits = peaks.gpus[gpu.id];
      site.sizes.forEach((ranks, size) => {
        if ((choices.sizes && !choices.sizes.includes(ranks)) || ranks > limits.node) return;
        for (const kv of choices.kv) {
          for (const weightFormat of choices.weights) {
            const config = capacity.configure(site, model, gpu, size, weightFormat, kv);
            if (!config) continue;
            const [block, kept, constant, terms] = model.plans[model.plan[kv][size][gpu.kind]];
            const plan = { block, kept, constant, terms };
            const uncertainty = model.reserve[gpu.reserve][size][1];
            const pool = gpu.memory - config.resident - config.reserve;
            if (pool <= 0) { refuse("weights"); continue; }
            const held = replicaUsers(plan, pool, work.mean, work.longest, work.prefix);
            if (!held) { refuse("context"); continue; }
            const demand = demandOf(times, weightFormat, kv, size, ranks);
            const fast = fastEnough(demand, limits, work, held);
            const each = Math.min(fast, limits.seqs);
            const first = prefillSeconds(demand, limits, work.prompt, work.prefix);
            if (!each) {
              refuse("time");
              fastest.tpot = least(fastest.tpot, decodeSeconds(demand, limits, 1, work.mean));
              fastest.ttft = least(fastest.ttft, first);
              continue;
            }
            const average = Math.ceil(Math.max(1, Math.ceil(work.concurrent)) / each);
            const peak = Math.ceil(work.peak / each);
            const replicas = [average, peak, peak + work.spares];
            const devices = replicas[2] * ranks;
            if (choices.available && devices > choices.available) { refuse("available"); continue; }
            const surely = Math.min(replicaUsers(plan, pool - uncertainty, work.mean, work.longest, work.prefix), limits.seqs);
            const price = choices.prices ? choices.prices[gpu.id] : undefined;
            found.push({
              model, gpu, ranks, size, weightFormat, kv, plan, pool, uncertainty,
              total: gpu.usable, weights: config.resident, reserve: config.reserve,
              request: capacity.requestBytes(constant, terms, work.mean),
              shared: sharedBytes(terms, work.prefix),
              state: config.heldConstant,
              held, each, replicas, devices,
              memory: devices * gpu.usable,
              price: price === undefined ? null : price * devices,
              headroom: replicas[1] * each / work.peak - 1,
              sure: surely * peak >= work.peak,
              binds: binds(plan, work.mean, held, fast, limits.seqs),
              tpot: decodeSeconds(demand, limits, Math.ceil(work.peak / Math.ceil(work.peak / each)), work.mean),
              ttft: first,
            });
          }
        }
      });
    }
    const priced = choices.prices && found.every((one) => one.price !== null);
    const before = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const first = !choices.gpus && !choices.prices; // nobody has said which there are: those that clouds rent come first
    found.sort((a, b) => b.sure - a.sure || (first ? b.gpu.rented - a.gpu.rented : 0) || (priced ? a.price - b.price : 0) || a.memory - b.memory || a.devices - b.devices
      || b.each - a.each || before(a.gpu.id, b.gpu.id) || a.ranks - b.ranks);
    return { deployments: found, refused, fastest };
  }

  function binds(plan, mean, held, fast, limit) {
    if (limit <= Math.min(held, fast)) return "max_seqs";
    if (fast < held) return "time";
    return 2 * plan.constant > capacity.requestBytes(plan.constant, plan.terms, mean) ? "state" : "cache";
  }

  function bestOfEach(deployments) {
    const seen = new Map();
    for (const one of deployments) if (!seen.has(one.gpu.id)) seen.set(one.gpu.id, one);
    return [...seen.values()];
  }

  /* The questions backwards, for one deployment. */
  function inverses(site, peaks, found, work) {
    const each = Math.ceil(work.peak / found.replicas[1]);
    const pool = poolFor(found.plan, each, work.mean, work.longest, work.prefix);
    const free = capacity.freeBytes(found.pool, found.plan.block, found.plan.kept);
    return {
      each, pool,
      utilization: utilizationFor(pool, found.weights, found.reserve, found.total),
      fractions: fractionInterval(found.total, found.weights, pool, peaks.gpus[found.gpu.id].kept[found.size]),
      longest: capacity.longest(Math.floor(free / each), found.plan.constant, found.plan.terms, found.model.limit),
    };
  }

  /* One sentence about why nothing serves the workload, and what would. */
  function whatToRelax(work, ranking) {
    const { refused, fastest } = ranking;
    const ms = (seconds) => `${(Math.ceil(seconds * 1e4) / 10).toLocaleString("en-US")} ms`;
    if (refused.limit) return "The longest request is longer than the model supports: shorten it or take another model.";
    if (refused.available) return `Nothing serves ${work.peak.toLocaleString("en-US")} requests with the devices available: allow more devices, fewer requests, a shorter average, or smaller formats.`;
    if (refused.time) {
      const parts = [];
      if (work.tpot !== null && fastest.tpot > work.tpot * work.efficiency) parts.push(`time per token to ${ms(fastest.tpot / work.efficiency)}`);
      if (work.ttft !== null && fastest.ttft > work.ttft * work.efficiency) parts.push(`time to first token to ${ms(fastest.ttft / work.efficiency)}`);
      return `Nothing that holds the workload is fast enough: relax ${parts.join(" and ") || "the time targets"}, allow more devices per replica, or faster ones.`;
    }
    if (refused.context) return "One longest request does not fit anything offered: shorten it, store the cache in FP8, or allow larger devices or more of them per replica.";
    if (refused.weights) return "The weights alone do not fit anything offered: allow more devices per replica, a smaller weight format, or larger devices.";
    return "Nothing offered can be configured so: allow other sizes, formats or accelerators.";
  }

  /* --- commands -------------------------------------------------------------------------------------------- */

  const quote = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\"'\"'")}'`);

  function command(server, found, work, own, share) {
    const vllm = server === "vllm";
    const words = vllm ? ["vllm", "serve", found.model.id] : ["python", "-m", "sglang.launch_server", "--model-path", found.model.id];
    if (found.ranks > 1) words.push(vllm ? "--tensor-parallel-size" : "--tp-size", String(found.ranks));
    words.push(vllm ? "--max-model-len" : "--context-length", String(work.longest));
    words.push(vllm ? "--max-num-seqs" : "--max-running-requests", String(Math.max(found.each, 1)));
    if (share !== null) words.push(vllm ? "--gpu-memory-utilization" : "--mem-fraction-static", String(share));
    if (found.weightFormat === "fp8") words.push("--quantization", "fp8");
    if (found.kv !== own) words.push("--kv-cache-dtype", found.kv === "bf16" ? "auto" : !vllm && found.kv === "fp8" ? "fp8_e4m3" : found.kv);
    return words.map(quote).join(" ");
  }

  const api = {
    sharedBytes, replicaUsers, poolFor, utilizationFor, fractionInterval, demandOf, decodeSeconds, prefillSeconds,
    fastEnough, workload, rank, bestOfEach, inverses, whatToRelax, command, EFFICIENCY, GIB,
  };
  if (typeof module === "object" && module.exports) module.exports = api;
  else root.kvSizing = api;
})(typeof globalThis === "object" ? globalThis : this);
