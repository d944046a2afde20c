/* Sizing in the browser: a workload filled in, every combination tried and ranked, over the published
   files and the generated formulas (kv-kernel.js), as kvreport.size does. A test holds every answer equal
   to Python's, over many workloads. No page here: plain values in, plain values out. */
(function (root) {
  "use strict";

  const { kvKernel: kernel, kvCapacity: capacity, kvState: state } = root;
  const { MAX_REQUESTS } = kernel;

  /* Numbers with marks at the thousands: the browser's own formatter takes longer to load than a ranking to be made. */
  const number = (n, digits) => {
    const [whole, part] = (digits === undefined ? String(n) : n.toFixed(digits)).split(".");
    return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
  };

  /* The largest batch of one data rank, up to what memory holds, that meets the time targets. Pipeline stages
     work on as many micro-batches at once, and a prompt may pass through them in chunks. */
  function fastEnough(step, work, held, stages) {
    const first = kernel.prefillSeconds(step, work.prompt, work.prefix);
    if (work.ttft !== null && !(first <= work.ttft * stages * work.efficiency)) return 0;
    if (work.tpot === null) return held;
    const most = kernel.replicasFor(held, stages);
    return Math.min(kernel.fastBatch(step, work.mean, work.tpot * work.efficiency, most) * stages, held);
  }

  /* Replicas at the peak: as many as hold it, and as many as surely do where that is one of several more. */
  function replicasAtPeak(requests, each, sure) {
    const found = kernel.replicasFor(requests, each);
    return found === 1 || !sure || sure * found >= requests
      ? [found]
      : [found, kernel.replicasFor(requests, sure)];
  }

  /* Average requests of which a pool holds this rank's part; 0 if one of the longest does not fit. */
  function replicaRequests(plan, pool, work) {
    return kernel.replicaRequests(plan, pool, work.mean, work.longest, work.prefix);
  }

  /* The most requests that a server may be told to run at once, and holds: the command says so many, and an engine that
     `follows` reserves for them; 0 where it would not start by default. See kvreport.accounting.capacity.followed. */
  function mostTold(usual, laid, limit, work) {
    const holds = (ranks) => Math.min(...ranks.map((one) => replicaRequests(one, one.room, work)));
    const follows = laid(1) !== null; // others' reserves are known for their defaults only
    let low = holds(usual);
    if (!follows || !low || low >= limit) return { most: low, follows };
    let high = Math.max(holds(laid(low)), low);
    while (low < high) {
      const middle = Math.floor((low + high + 1) / 2), found = holds(laid(middle));
      if (found >= middle) [low, high] = [middle, Math.min(high, found)];
      else [low, high] = [Math.max(low, found), middle - 1];
    }
    return { most: low, follows };
  }

  /* --- the workload --------------------------------------------------------------------------------- */

  /* Fill in a workload as kvreport.size does: {work, assumed} or {error}. `asked`: context, average,
     concurrent, or else users/perMinute/latency, prompt, output, ttft, tpot (seconds), burst, spares, prefix,
     efficiency; null or undefined where nothing is said. */
  function workload(asked) {
    const given = (value) => value !== null && value !== undefined;
    const fail = (error) => ({ error });
    const assumed = [];
    const rates = [asked.users, asked.perMinute, asked.latency];
    let concurrent = asked.concurrent;
    if (given(concurrent)) {
      if (rates.some(given)) {
        return fail(
          "Enter the concurrent requests, or people with requests per minute and latency, not both.",
        );
      }
    } else {
      if (!rates.every(given)) {
        return fail("Enter the concurrent requests, or people with requests per minute and latency.");
      }
      if (!(asked.users > 0 && asked.perMinute > 0 && asked.latency > 0)) {
        return fail("Users, requests per minute and latency must be above 0.");
      }
      concurrent = kernel.requestsInFlight(asked.users, asked.perMinute, asked.latency);
      assumed.push(
        `Little’s law: ${
          number(asked.users)
        } users × ${asked.perMinute} per minute / 60 × ${asked.latency} s = ${
          concurrent.toFixed(1)
        } requests in flight`,
      );
    }
    const longest = asked.context;
    if (!(longest >= 1 && longest <= 2 ** 30)) return fail("The maximum length must be 1 to 2^30 tokens.");
    const output = given(asked.output) ? asked.output : kernel.defaultOutput(longest);
    const prompt = given(asked.prompt) ? asked.prompt : longest - output;
    if (!given(asked.output)) assumed.push(`answers of ${number(output)} tokens`);
    if (!given(asked.prompt)) {
      assumed.push(`prompts of ${number(prompt)} tokens, what the answer leaves of the longest request`);
    }
    let mean = asked.average;
    if (!given(mean)) {
      if (given(asked.prompt) && given(asked.output)) {
        mean = kernel.meanTokens(prompt, output);
        assumed.push(`${number(mean)} tokens held on average: the prompt and half of the answer`);
      } else {
        mean = longest;
        assumed.push("every request of the maximum length");
      }
    }
    const work = {
      concurrent,
      latency: asked.latency ?? null,
      longest,
      mean,
      prompt,
      output,
      ttft: given(asked.ttft) ? asked.ttft : null,
      tpot: given(asked.tpot) ? asked.tpot : null,
      burst: given(asked.burst) ? asked.burst : 1,
      spares: asked.spares || 0,
      prefix: asked.prefix || 0,
      efficiency: given(asked.efficiency) ? asked.efficiency : kernel.DEFAULT_EFFICIENCY,
    };
    if (!(concurrent > 0 && concurrent <= MAX_REQUESTS)) {
      return fail(`The requests in flight must be above 0 and at most ${number(MAX_REQUESTS)}.`);
    }
    if (!(work.burst >= 1 && work.burst <= 1000)) return fail("A burst is a factor from 1 to 1,000.");
    if (!(work.spares >= 0 && work.spares <= 1000)) return fail("There can be 0 to 1,000 spare replicas.");
    if (!(work.efficiency > 0 && work.efficiency <= 1)) {
      return fail("The share of the roofline is above 0 and at most 1.");
    }
    if ((work.ttft !== null && !(work.ttft > 0)) || (work.tpot !== null && !(work.tpot > 0))) {
      return fail("A time target must be above 0.");
    }
    if (prompt < 1 || output < 1) return fail("Prompt and answer need at least 1 token each.");
    if (prompt + output > longest) {
      return fail(
        `Prompt and answer, ${number(prompt)} + ${
          number(output)
        } tokens, are more than the maximum length of ${
          number(longest)
        }: shorten one of them or raise the context.`,
      );
    }
    if (!(mean >= 1 && mean <= longest)) {
      return fail(
        `An average of ${number(mean)} tokens is not possible with a maximum length of ${
          number(longest)
        }: lower the average or raise the maximum.`,
      );
    }
    if (!(work.prefix >= 0 && work.prefix <= Math.min(prompt, mean))) {
      return fail(
        `A shared prefix of ${number(work.prefix)} tokens is longer than the prompt or the average request.`,
      );
    }
    if (work.ttft !== null || work.tpot !== null) {
      assumed.push(`servers reach ${Math.round(work.efficiency * 100)}% of the roofline`);
    }
    work.peak = Math.ceil(concurrent * work.burst);
    return { work, assumed };
  }

  /* --- ranking ------------------------------------------------------------------------------------------ */

  /* The accelerators' limits under another engine: how many requests it runs at once is its own default. */
  const underEngine = (peaks, site) => ({
    ...peaks,
    gpus: Object.fromEntries(
      site.gpus.map((gpu) => [gpu.id, { ...peaks.gpus[gpu.id], seqs: gpu.step[1] }]),
    ),
  });

  /* The limits of an accelerator; of a machine of unequal ones those of the slowest, and the first one's requests. */
  function limitsOf(peaks, gpu) {
    if (!gpu.devices) return peaks.gpus[gpu.id];
    const each = gpu.devices.map((one) => peaks.gpus[one.id]);
    const slowest = each.reduce((a, b) => ((b.bytes ?? NaN) < (a.bytes ?? NaN) ? b : a));
    return { ...slowest, seqs: each[0].seqs, node: each.length };
  }

  /* Deployments that serve the workload, best first, as kvreport.accounting.ranking.rank has them. */
  function rank(site, peaks, model, times, work, choices) {
    const steps = ranking(site, peaks, model, times, work, choices);
    let step = steps.next();
    while (!step.done) step = steps.next();
    return step.value;
  }

  /* The same, step by step: it can be left alone after each accelerator.
     choices: {gpus: ids or null (a machine of unequal ones has an id, too), weights: names, kv: names, layouts: labels or null, available: n or null,
     prices: {id: price} or null}. */
  function* ranking(site, peaks, model, times, work, choices) {
    const found = [], refused = {}, fastest = { tpot: NaN, ttft: NaN };
    const refuse = (reason) => {
      refused[reason] = (refused[reason] || 0) + 1;
    };
    const least = (a, b) => (Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.min(a, b));
    if (work.longest > model.limit) return { deployments: [], refused: { limit: 1 }, fastest };
    const asked = choices.gpus && choices.gpus.map((id) => capacity.gpuOf(site, id)).filter((gpu) => gpu);
    const machines = (asked || []).filter((gpu) => gpu.devices);
    for (const gpu of [...machines, ...site.gpus.filter((one) => !asked || asked.includes(one))]) {
      yield;
      const limits = limitsOf(peaks, gpu);
      const own = gpu.devices && gpu.devices.map((one) => choices.prices?.[one.id]);
      const available = choices.available && choices.available * (own ? own.length : 1);
      for (const layout of state.everyLayout(site)) {
        if (choices.layouts && !choices.layouts.includes(layout.label)) continue;
        if (!capacity.stands(gpu, layout)) continue;
        if (!layout.row && layout.devices > layout.nodes * limits.node) continue; // a machine has slots for any row
        for (const kv of choices.kv) {
          for (const weightFormat of choices.weights) {
            const asks = { later: true, context: work.longest };
            const laid = (seqs) =>
              capacity.ranksOf(site, model, gpu, layout, weightFormat, kv, { ...asks, seqs });
            const usual = laid();
            if (!usual) continue;
            const step = capacity.demandOf(times, limits, weightFormat, kv, layout.places[0], layout.tp);
            const told = mostTold(usual, laid, limits.seqs, work);
            const flag = Math.max(Math.min(told.most, fastEnough(step, work, told.most, layout.pp)), 1);
            const stages = told.follows && told.most ? laid(Math.min(flag, limits.seqs)) : toldRanks(
              site,
              peaks,
              times,
              layout,
              usual,
              work.longest,
              kernel.ofAllRanks(flag, layout.dp),
            );
            if (stages.some((stage) => stage.room <= 0)) {
              refuse("weights");
              continue;
            }
            const holding = stages.map((stage) => replicaRequests(stage, stage.room, work));
            const held = Math.min(...holding, told.most);
            if (!held) {
              refuse("context");
              continue;
            }
            const stage = stages[holding.indexOf(Math.min(...holding))];
            const fast = fastEnough(step, work, held, layout.pp);
            const each = Math.min(fast, limits.seqs);
            const first = kernel.prefillSeconds(step, work.prompt, work.prefix) / layout.pp;
            if (!each) {
              refuse("time");
              fastest.tpot = least(fastest.tpot, kernel.decodeSeconds(step, 1, work.mean));
              fastest.ttft = least(fastest.ttft, first);
              continue;
            }
            const all = kernel.ofAllRanks(each, layout.dp);
            const average = kernel.replicasFor(Math.max(1, Math.ceil(work.concurrent)), all);
            const surely = Math.min(
              limits.seqs,
              ...stages.map((one) => replicaRequests(one, one.room - one.uncertainty, work)),
            );
            const sure = kernel.ofAllRanks(surely, layout.dp);
            const { constant, terms } = stage;
            const request = kernel.requestBytes(constant, terms, work.mean);
            const price = own ? mean(own) : choices.prices?.[gpu.id];
            for (const peak of replicasAtPeak(work.peak, all, sure)) {
              const batch = kernel.microBatch(Math.ceil(work.peak / peak), layout.dp, layout.pp);
              const replicas = [average, peak, peak + work.spares];
              const devices = replicas[2] * layout.devices;
              if (available && devices > available) {
                refuse("available");
                continue;
              }
              found.push({
                model,
                gpu,
                layout,
                ranks: layout.tp,
                weightFormat,
                kv,
                pool: stage.pool,
                uncertainty: stage.uncertainty,
                total: stage.gpu.usable,
                stages,
                stage,
                mean: work.mean,
                prefix: work.prefix,
                weights: stage.resident,
                reserve: stage.reserve,
                request: capacity.reservedBytes(stage, work.mean),
                shared: kernel.sharedBytes(terms, work.prefix),
                state: stage.heldConstant,
                held: kernel.ofAllRanks(held, layout.dp),
                each: all,
                replicas,
                devices,
                memory: own
                  ? replicas[2] * gpu.devices.reduce((sum, one) => sum + one.usable, 0)
                  : devices * gpu.usable,
                price: Number.isFinite(price) ? price * devices : null,
                headroom: kernel.headroom(replicas[1], all, work.peak),
                sureEach: sure,
                sure: sure * peak >= work.peak,
                binds: kernel.whatLimits(request, constant, held, fast, limits.seqs),
                tpot: kernel.decodeSeconds(step, batch, work.mean),
                ttft: first,
                quick: true,
              });
            }
          }
        }
      }
    }
    const priced = choices.prices && found.every((one) => one.price !== null);
    const before = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const billed = (one) => Math.ceil(one.devices / one.gpu.machine) * one.gpu.machine; // whole machines are paid for
    const first = !choices.gpus && !choices.prices; // nobody has said which there are: those that clouds rent come first
    const hardware = (a, b) =>
      Number(b.sure) - Number(a.sure) || (first ? b.gpu.rental - a.gpu.rental || billed(a) - billed(b) : 0) ||
      (priced ? a.price - b.price : 0) ||
      a.memory - b.memory || a.devices - b.devices;
    found.sort(hardware);
    for (let start = 0, end = 0; start < found.length; start = end) { // which are about as fast as the fastest there
      let shortest = NaN;
      while (end < found.length && !hardware(found[start], found[end])) {
        shortest = least(shortest, found[end++].tpot);
      }
      for (const one of found.slice(start, end)) one.quick = kernel.isQuick(one.tpot, shortest);
    }
    found.sort((a, b) =>
      hardware(a, b) || Number(b.quick) - Number(a.quick) || a.layout.order - b.layout.order ||
      b.each * b.replicas[1] - a.each * a.replicas[1] || b.gpu.providers - a.gpu.providers ||
      before(a.gpu.id, b.gpu.id) ||
      a.ranks - b.ranks ||
      before(a.layout.label, b.layout.label)
    );
    return { deployments: found, refused, fastest };
  }

  /* The price of a million output tokens at the average load, with its prompts, spares and idle time; null if unknown. */
  function pricePerMillion(one, work) {
    const seconds = work.latency ?? kernel.requestSeconds(one.ttft, one.tpot, work.output, work.efficiency);
    return one.price === null || Number.isNaN(seconds)
      ? null
      : kernel.pricePerMillion(one.price, work.concurrent * work.output / seconds);
  }

  const mean = (list) => list.reduce((sum, one) => sum + one, 0) / list.length;

  function bestOfEach(deployments) {
    const seen = new Map();
    for (const one of deployments) if (!seen.has(one.gpu.id)) seen.set(one.gpu.id, one);
    return [...seen.values()];
  }

  /* One value, or that of a kind of device. */
  const ofKind = (gpu, values) => Array.isArray(values) ? values[gpu.laid ?? gpu.kind] : values;

  /* Bytes that SGLang keeps for images beside weights and pools, of a server that is told to run so many requests. */
  function keptForImages(times, gpu, requests) {
    const [usual, , , many, senders] = times.static;
    return ofKind(gpu, requests >= senders ? many : usual);
  }

  /* Bytes that SGLang takes of a device before it loads weights. */
  const takenOf = ({ taken }, { devices, dp }) =>
    taken[devices === 1 ? 0 : (dp > 1 ? 3 : 1) + (devices > 2 ? 1 : 0)];

  /* Bytes that SGLang keeps free beside weights and pools of one rank, of a server that is told to run so many requests; 0
     for one that is not told. See kvreport.accounting.engines.sglang.settings.memory. */
  function keptFree(limits, times, gpu, layout, place, longest, requests) {
    const [, left, short, , , images, expands, prefills] = times.static;
    const [device, chunk, few, wide, follows, captures] = limits.captured;
    const usual = layout.tp * layout.dp >= kernel.WIDE_RANKS ? wide : few;
    const captured = kernel.capturedRequests(usual, requests, follows, ofKind(gpu, expands));
    const prefill = captures ? prefills[chunk] : 0;
    const graphs = kernel.decodeGraphMib(captured, layout.dp) + (prefill[place] ?? prefill);
    const reserved = kernel.reservedMib(device, chunk, layout.tp * layout.dp * layout.pp, graphs);
    const share = kernel.staticShare(device, reserved) * images * (longest <= short ? 1 : ofKind(gpu, left));
    return kernel.staticKept(gpu.usable, takenOf(limits, layout), share) +
      keptForImages(times, gpu, requests);
  }

  /* The ranks of a server that is told to run so many requests, whose pool SGLang sizes by them. */
  function toldRanks(site, peaks, times, layout, ranks, longest, requests) {
    if (site.engine.family !== "sglang") return ranks;
    return ranks.map((one) => {
      const limits = peaks.gpus[one.gpu.id];
      const kept = (number) => keptFree(limits, times, one.gpu, layout, one.place, longest, number);
      const more = kept(requests) - kept(0);
      if (!more) return one;
      return {
        ...capacity.shifted(one, -more),
        reserve: one.reserve + more,
        uncertainty: one.uncertainty,
      };
    });
  }

  /* The interval of SGLang's static fraction that holds the pools of all stages, up to what it takes by itself; null if
     it is empty. */
  function staticFractions(peaks, times, found, pools, each, work) {
    const { longest } = work;
    const [, left, short] = times.static;
    const kept = keptForImages(times, found.gpu, found.each);
    const share = longest <= short ? 1 : ofKind(found.gpu, left);
    const of = (found.total - takenOf(peaks.gpus[found.gpu.least || found.gpu.id], found.layout)) * share;
    const lowest = Math.max(
      ...found.stages.map((one, index) => kernel.lowestStaticFraction(pools[index], one.resident, kept, of)),
    );
    const highest = Math.min(
      ...found.stages.map((one) => kernel.ownStaticFraction(one.gpu.usable, one.reserve, kept, of)),
    );
    const holds = (plan, pool) => {
      const needed = kernel.bytesFor(plan, each, work.mean, work.longest, work.prefix);
      return plan.block > 0 ? kernel.poolHolds(plan, pool, needed, each, work.mean) : needed === 0;
    };
    // Where more memory buys a state, it may leave too few tokens: the next fraction that holds them.
    for (let step = Math.round(lowest * 1000); step <= Math.round(highest * 1000); step++) {
      const pool = Math.min(
        ...found.stages.map((one) => kernel.staticPool(step / 1000, one.resident, kept, of)),
      );
      if (found.stages.every((one) => holds(one, pool))) return { lowest: step / 1000, highest };
    }
    return null;
  }

  /* The questions backwards, for one deployment; requests are those of one data rank. Every stage of a pipeline must
     hold its part: the smallest pool is that of the stage that holds least. */
  function inverses(site, peaks, times, found, work) {
    const share = Math.ceil(work.peak / found.replicas[1]);
    const each = kernel.replicasFor(share, found.layout.dp);
    const isStatic = site.engine.family === "sglang";
    const told = Math.max(Math.floor(found.each / found.layout.dp), 1);
    // Beside what is held, blocks of states that must exist at start.
    const needs = found.stages.map((plan) =>
      Math.max(
        kernel.poolFor(plan, each, work.mean, work.longest, work.prefix),
        plan.wanted ? told * plan.block : 0,
      )
    );
    const pools = isStatic ? needs.map(() => Math.max(...needs)) : needs; // its ranks agree on one pool
    const utilization = Math.max(
      ...found.stages.map((one, index) =>
        kernel.utilizationFor(pools[index], one.resident, one.reserve, one.gpu.usable)
      ),
    );
    const caches = found.stages.some((one) => one.constant > 0 || one.terms.length > 0);
    return {
      share,
      each,
      pool: pools[found.stages.indexOf(found.stage)],
      utilization: isStatic || !caches || utilization > 1 ? null : utilization,
      fractions: isStatic ? staticFractions(peaks, times, found, pools, each, work) : null,
      longest: capacity.longestOf(found.stages, each),
    };
  }

  /* One sentence about why nothing serves the workload, and what would; the words are Python's. */
  function whatToRelax(site, work, choices, ranking) {
    const { refused, fastest } = ranking;
    const { relax } = kernel.words;
    const fill = (name, values) => relax[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);
    const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;
    const reason = ["limit", "available", "time", "context"].find((name) => refused[name]) ||
      (Object.keys(refused).length ? "weights" : "formats");
    const missed = ["tpot", "ttft"]
      .filter((name) => work[name] !== null && fastest[name] > work[name] * work.efficiency)
      .map((name) => {
        const tenths = Math.ceil(fastest[name] / work.efficiency * 1e4) / 10;
        return fill(name, { time: `${number(tenths, 1)} ms` });
      });
    return sentence(fill(reason, {
      peak: number(work.peak),
      context: number(work.longest),
      targets: missed.join(" and ") || relax.targets,
      sizes: site.sizes.join(", "),
      formats: choices.kv.join(", "),
    }));
  }

  /* --- commands -------------------------------------------------------------------------------------------- */

  /* The command that serves a deployment, told to run as many requests at once as it holds. SGLang works its share out by
     itself; another engine may hold fewer requests. */
  const command = (site, found, work) =>
    state.serveCommand(
      site,
      {
        seqs: Math.max(Math.floor(found.each / found.layout.dp), 1),
        share: site.engine.family === "sglang" ? null : found.gpu.share,
      },
      { ...found, kvFormat: found.kv },
      work.longest,
    );

  /* Why a layout wins: what its pools hold together, what a request takes of them, and how long a step takes, next to another layout's. */
  function whyItWins(best, other, name, gpus) {
    const gib = (bytes) => number(bytes / 2 ** 30, 1).replace(/\.0$/, "");
    const pools = ({ layout, pool }) => gib(kernel.overReplica(pool, layout.devices));
    const request = ({ layout, request }) => gib(kernel.overDataRank(request, layout.devices, layout.dp));
    const step = ({ tpot }) => Number.isNaN(tpot) ? "an unknown time" : `${(tpot * 1e3).toFixed(1)} ms`;
    return kernel.words.why_layout.replace(/\{(\w+)\}/g, (_, key) =>
      ({
        best: name(best),
        because: best.devices < other.devices ? kernel.words.why_fewer : "",
        best_pool: pools(best),
        best_request: request(best),
        best_step: step(best),
        other_step: step(other),
        best_gpus: gpus(best.layout.devices),
        other: name(other),
        other_pool: pools(other),
        other_request: request(other),
        other_gpus: gpus(other.layout.devices),
      })[key]);
  }

  /* The command that answers the same question. asked, available, prices: as the page reads them; formats as given
     on the command line, "" for the defaults. */
  function sizeCommand(model, engine, { asked, available, prices }, { gpu, weights, kv }) {
    const seconds = (
      value,
    ) => (value === null || value === undefined ? null : `${+(value * 1000).toFixed(3)}ms`);
    const words = ["kvreport", "size", model];
    const add = (flag, value) => {
      if (value !== null && value !== undefined && value !== "") words.push(flag, String(value));
    };
    add("--context", asked.context);
    add("--concurrent", asked.concurrent);
    add("--users", asked.users);
    if (asked.users) {
      add("--requests-per-minute", asked.perMinute);
      add("--latency", `${asked.latency}s`);
    }
    add("--average", asked.average);
    add("--prompt", asked.prompt);
    add("--output", asked.output);
    add("--shared-prefix", asked.prefix);
    add("--burst", asked.burst);
    add("--spares", asked.spares);
    add("--ttft", seconds(asked.ttft));
    add("--tpot", seconds(asked.tpot));
    add("--efficiency", asked.efficiency);
    add("--gpu", gpu);
    add("--available", available);
    for (const [name, price] of Object.entries(prices || {})) add("--price", `${name}=${price}`);
    add("--weights", weights);
    add("--kv", kv);
    add("--engine", engine);
    return words.map(state.quote).join(" ");
  }

  root.kvSizing = {
    pricePerMillion,
    workload,
    rank,
    ranking,
    bestOfEach,
    inverses,
    whatToRelax,
    command,
    whyItWins,
    sizeCommand,
    underEngine,
  };
})(typeof globalThis === "object" ? globalThis : this);
