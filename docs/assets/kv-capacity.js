/* Capacity from the published files, in the browser: reads a model's JSON, asks the generated formulas
   (kv-kernel.js), returns plain values. No page here. Sizes are whole bytes below 2^53, so a double
   holds them exactly; tests hold every answer equal to the dataset, row by row. */
(function (root) {
  "use strict";

  const kernel = root.kvKernel;

  /* What is asked beside model, device and formats; nothing of it is the engine's default.
     later: leave the longest context to be asked for; context: tokens of the longest request that the server is told
     to take, else the model's longest; share: memory share; batched: tokens of one step;
     seqs: requests at once; eager: no graphs; ceiling: nothing reserved, nothing rounded. */
  const NOTHING = {};
  const NOT_READ = [0, [], 0]; /* what the architecture needs, until its file is read */

  /* One configuration: everything but the context. Null where it cannot be configured.
     site: site.json; model: a model's file; gpu: an entry of site.gpus; size: a column of the model's lists,
     which is an index into site.sizes or a place of site.layouts; asked: see above, or true for later. */
  function configure(site, model, gpu, size, weightFormat, kvFormat, asked) {
    const weights = model.weights[weightFormat] && model.weights[weightFormat][size];
    const placed = model.plan[kvFormat];
    if (gpu.most && site.sizes[size] > gpu.most) return null; // a computer's own chip stands alone in it
    const index = placed && placed[size] ? placed[size][gpu.kind] : -1;
    if (weights === null || weights === undefined || index < 0) return null;
    const [block, kept, constant, printed, divided, steps] = model.plans[index];
    const rules = divided ? [ruleOf(divided)] : [];
    const loading = model.loaded[weightFormat][size];
    const added = Array.isArray(loading) ? loading[gpu.kind] : loading;
    if (added === null) return null; // the engine's release refuses these weights on this device
    const resident = weights + added;
    const options = asked === true ? { later: true } : asked || NOTHING;
    const step = stepOf(site, model, gpu, options), [usual] = usualStep(model, gpu);
    if (step.tokens < model.least_step) return null; // no step holds the model's longest video
    const terms = step.tokens === usual
      ? printed
      : kernel.tokensInFlight(printed, steps ?? site.engine.in_flight, step.tokens, usual);
    const kept_back = reserveOf(site, model, gpu, size, step, kvFormat);
    if (!kept_back) return null; // this engine's reserve is known for its defaults only
    const [reserve, published, less, short] = kept_back;
    const uncertainty = errorOfFormat(site, gpu, size, weightFormat) ?? published;
    const layout = model.held[kvFormat]?.[size] || NOT_READ;
    const [heldConstant, heldTerms, state] = layout.kinds ? layout.kinds[gpu.laid ?? gpu.kind] : layout;
    const memory = options.share === undefined ? gpu.memory : kernel.engineMemory(gpu.usable, options.share);
    const most = options.most ?? Infinity;
    const left = kernel.poolLeft(memory, resident, reserve);
    const pool = Math.max(Math.min(left, most), 0);
    const own = kernel.roomLeft(gpu.usable, memory, resident, reserve, constant, terms);
    const room = Math.min(own, most);
    // A plan without caches may have blocks of no bytes: nothing is divided then.
    const plan = { block, kept, constant, terms, rules };
    const free = block > 0 ? Math.min(room, kernel.planBytes(plan, room, kept)) : room;
    const rates = options.ceiling ? null : followed(model, gpu, size);
    /** @type {Configuration} */
    const config = {
      model,
      gpu,
      size: size < site.sizes.length ? site.sizes[size] : undefined,
      place: size,
      weightFormat,
      kvFormat,
      weights,
      resident,
      memory,
      reserve,
      left,
      room,
      pool,
      uncertainty,
      tokens: step.tokens,
      seqs: step.seqs,
      eager: step.eager,
      adapted: step.adapted,
      ceiling: Boolean(options.ceiling),
      wanted: model.slots && !step.eager ? step.seqs : 0,
      ...plan,
      free,
      heldConstant,
      heldTerms,
      state,
      fitsWeights: resident <= gpu.usable,
      rates,
      shorter: options.ceiling || !less
        ? null
        : { less, short, room: own, most: options.mostOfShort ?? Infinity },
      staged: Boolean(rates) && isStage(site, size),
    };
    config.longest = options.later ? undefined : longestOf([config]);
    return options.context === undefined ? config : at(config, options.context);
  }

  /* The rates of a reserve that follows the longest request; null where it does not. */
  function followed(model, gpu, size) {
    const rates = model.following ? model.following[gpu.reserve]?.[size] : ratesOf(model, gpu, size);
    return rates && kernel.followsLength(rates) ? rates : null;
  }

  /* The same configuration of a server that is told a longest request of so many tokens. */
  function at(config, context) {
    const whole = config.whole || config;
    const { rates, model, gpu, tokens, seqs, eager, adapted, block, kept, shorter } = whole;
    const told = Math.min(context, model.limit);
    if (shorter) return told > shorter.short ? whole : shortened(whole, told);
    if (!rates || told === model.limit) return whole;
    const asked = { tokens, seqs, eager, adapted };
    const [longest, step] = [model.limit, told].map((one) => reserveStep(gpu, asked, one));
    const freed = kernel.followingBytes(rates, longest) - kernel.followingBytes(rates, step);
    const most = kernel.openBytes(rates, longest), spared = kernel.openBytes(rates, step);
    const [share, least] = bandOf(gpu, rates, whole.staged);
    const band = (bytes) => kernel.errorBytes(share, least, bytes);
    const reserve = whole.reserve - freed, left = whole.left + freed, room = whole.room + freed;
    return {
      ...whole,
      whole,
      told,
      reserve,
      left,
      room,
      pool: Math.max(left, 0),
      free: block > 0 ? Math.min(room, kernel.freeBytes(room, block, kept)) : room,
      uncertainty: whole.uncertainty &&
        whole.uncertainty - band(whole.reserve) + band(reserve) - most + spared,
    };
  }

  /* The same configuration of a server whose longest request has at most so many tokens that less is reserved. */
  function shortened(whole, told) {
    const { block, kept, shorter } = whole;
    const left = whole.left + shorter.less, room = Math.min(shorter.room + shorter.less, shorter.most);
    return {
      ...whole,
      whole,
      told,
      reserve: whole.reserve - shorter.less,
      left,
      room,
      pool: Math.max(Math.min(left, shorter.most), 0),
      free: block > 0 ? Math.min(room, kernel.planBytes(whole, room, kept)) : room,
    };
  }

  /* The longest context that one request, or each of so many, can have on all ranks, told to the server: see
     kvreport.accounting.capacity.followed. */
  function longestOf(ranks, wanted) {
    const { limit } = ranks[0].model;
    const heldBy = (rank, length) => {
      const told = at(rank, length);
      return wanted || told.rules.length
        ? kernel.boundaryContext(told, wanted ? told.pool : told.room, wanted || 1, limit)
        : kernel.longestContext(told.free, told.constant, told.terms, limit);
    };
    const follow = ranks.some((rank) => rank.rates || rank.shorter);
    const falls = Math.max(...ranks.map(({ rates }) => (rates ? kernel.fallsBeyond(rates, limit) : 0)));
    /* The longest of more than `above` tokens; `above` if there is none. */
    const longest = (above, most) => {
      const reach = (length) =>
        Math.min(Math.max(Math.min(...ranks.map((rank) => heldBy(rank, length))), above), most);
      let low = reach(most);
      let high = follow ? Math.max(reach(Math.max(low, above + 1)), low) : low;
      while (low < high) {
        const middle = Math.floor((low + high + 1) / 2), found = reach(middle);
        if (found >= middle) [low, high] = [middle, Math.min(high, found)];
        else [low, high] = [Math.max(low, found), middle - 1];
      }
      return low;
    };
    const beyond = longest(falls, limit);
    return falls && beyond === falls ? longest(0, falls) : beyond;
  }

  /* The fields of a record that says how a budget is divided, in the order of a plan's list. */
  const RULE =
    "cellBytes fixedBytes window shared windowShare page stateBytes stateShare statesEach turns spare windowBytes slotBytes"
      .split(" ");

  /** @returns {PoolRule} */
  const ruleOf = (list) => /** @type {any} */ (Object.fromEntries(RULE.map((name, n) => [name, list[n]])));

  /* The scheduler's sizes by default for a model on a device: a step holds what the engine does not divide. */
  const usualStep = (model, gpu) => [Math.max(gpu.step[0], model.least_step), gpu.step[1]];

  /* The scheduler's sizes: as asked, or as the engine defaults them for a model on a device. SGLang's chunks of prefill
     set no bound to the requests at once. */
  function stepOf(site, model, gpu, options) {
    const [usual, rows] = usualStep(model, gpu);
    const tokens = options.batched || usual, seqs = options.seqs || rows;
    return {
      tokens,
      seqs: site.engine.family === "sglang" ? seqs : kernel.maxNumSeqsOf(seqs, tokens),
      eager: Boolean(options.eager),
      adapted: Boolean(options.adapted),
    };
  }

  const ratesOf = (model, gpu, size) => {
    const list = (gpu.runner && model.other_rates) || model.rates;
    return list ? list[size] : null;
  };

  /* Whether a column is a pipeline stage, whose error band is that of stages. */
  const isStage = (site, place) =>
    place >= site.sizes.length &&
    [...site.layouts, ...site.sizing_layouts].some((one) => one.pp > 1 && one.places.includes(place));

  /* [share of the reserve, bytes] of the error band: the last is that of pipeline stages, else rates tell which kind it is. */
  const bandOf = (gpu, rates, staged) => gpu.band.slice(staged ? -2 : 2 * kernel.bandKind(rates));

  /* Half width of the error band with weights that are converted to a format; undefined where it is the published one. */
  function errorOfFormat(site, gpu, place, weightFormat) {
    if (!gpu.errors || weightFormat === "released") return undefined;
    const ranks = place >= site.sizes.length || site.sizes[place] > 1;
    return gpu.errors[(ranks ? 2 : 0) + (/^[a-z-]*4/.test(weightFormat) ? 1 : 0)];
  }

  /* A scheduler step on a device as the formulas of its reserve take it. */
  const reserveStep = (gpu, { tokens, seqs, eager, adapted }, context) => ({
    tokens,
    maxNumSeqs: seqs,
    context,
    ownKernels: gpu.own,
    splits: gpu.splits,
    partial: Boolean(gpu.partial),
    eager,
    compiled: eager,
    adapted,
  });

  /* Bytes that graphs keep less in a cache of fewer than 16 bits. */
  function narrowBytes(rates, gpu, step, kvFormat) {
    if (!rates || kernel.words.two_byte_kv.includes(kvFormat)) return 0;
    return kernel.narrowCacheBytes(rates, reserveStep(gpu, step, 0));
  }

  /* [bytes, half width of the error band] of what the engine keeps beside weights and cache; the published ones are of
     a cache of 16 bits. */
  function reserveOf(site, model, gpu, size, step, kvFormat) {
    const kept = wideReserveOf(site, model, gpu, size, step);
    const less = kept ? narrowBytes(followed(model, gpu, size), gpu, step, kvFormat) : 0;
    if (!less) return kept;
    const [reserve, uncertainty, ...others] = kept;
    const [share, least] = bandOf(gpu, followed(model, gpu, size), isStage(site, size));
    const band = (bytes) => kernel.errorBytes(share, least, bytes);
    return [reserve - less, uncertainty - band(reserve) + band(reserve - less), ...others];
  }

  function wideReserveOf(site, model, gpu, size, step) {
    const [tokens, seqs] = usualStep(model, gpu);
    const usual = step.tokens === tokens && step.seqs === seqs && !step.eager && !step.adapted;
    const listed = usual && model.reserve && model.reserve[gpu.reserve];
    if (listed) return listed[size];
    const rates = ratesOf(model, gpu, size);
    if (!rates) return null;
    const asked = reserveStep(gpu, step, model.limit);
    const [multicast, shared, handles] = gpu.outside;
    const reserve = kernel.reserveBytes(rates, asked, multicast, shared, handles);
    const [share, least] = bandOf(gpu, rates, isStage(site, size));
    return [reserve, kernel.errorBytes(share, least, reserve) + kernel.openBytes(rates, asked)];
  }

  /* Whether a model's file has an engine's numbers for an accelerator. Some engines' files have what they keep on the
     usual accelerators only, and a model may have pools that these formulas do not divide. */
  const isPublished = (model, gpu) =>
    !model.pools &&
    (gpu.devices || [gpu]).every((one) => ratesOf(model, one, 0) || model.reserve?.[one.reserve]);

  /* The parts of a configuration's reserve; null for engines whose reserve is one number. */
  function reserveParts(config) {
    const { model, gpu, place, tokens, seqs, eager, adapted, kvFormat, told = model.limit } = config;
    const rates = ratesOf(model, gpu, place);
    if (!rates) return null;
    const asked = { tokens, seqs, eager, adapted };
    const less = narrowBytes(rates, gpu, asked, kvFormat);
    const step = reserveStep(gpu, asked, told);
    const [multicast, shared, handles] = gpu.outside;
    return {
      activations: kernel.activationBytes(rates, step),
      outside: kernel.outsideBytes(rates, multicast, shared, handles),
      graphs: eager ? 0 : kernel.graphBytes(rates, step) - less,
    };
  }

  const codeOf = (name) => kernel.words.verdicts.indexOf(name);

  /* The answer of a configuration at a context. */
  function answer(config, context) {
    const found = answerOfEngine(config, context);
    if (!config.ceiling) return found;
    const { gpu, model } = config;
    const judged = kernel.ceilingVerdict(gpu.usable, config.weights, found.ceiling, context, model.limit);
    const users = kernel.runningRequests(judged, found.ceiling, 0);
    return {
      ...found,
      users,
      held: found.ceiling,
      limitedBy: "kv_pool",
      verdict: kernel.words.verdicts[judged],
    };
  }

  /* What keeps one more request from running, by name. */
  function limitOf(config, verdict, held) {
    return kernel.words.limit_names[kernel.limitedBy(config, config.pool, verdict, held, config.seqs)];
  }

  /* Bytes of one more token of the whole model, as one rank holds them; NaN where one rank holds none. */
  function wholeToken({ model, gpu, kvFormat }, context) {
    const layout = model.held[kvFormat]?.[0];
    if (!layout) return NaN;
    const [, terms] = layout.kinds ? layout.kinds[gpu.laid ?? gpu.kind] : layout;
    return kernel.tokenBytes(terms, context);
  }

  /* Everything that one request of a configuration reserves: its blocks, and its part of other pools. */
  function reservedBytes({ rules: [rule], constant, terms }, context) {
    const blocks = kernel.requestBytes(constant, terms, context);
    return rule ? blocks + kernel.bytesBeside(rule, context) : blocks;
  }

  function answerOfEngine(asked, context) {
    const config = at(asked, context);
    const { model, gpu, room } = config;
    const own = kernel.requestBytes(config.heldConstant, config.heldTerms, context);
    const { resident, uncertainty, wanted } = config;
    const judged = kernel
      .verdict(config, gpu.usable, resident, room, uncertainty, wanted, context, model.limit);
    const [free, less, more] = gpu.free || [config.memory, 0, 0];
    const band = config.memory > free ? more : less;
    const verdict = Math.max(judged, kernel.startVerdict(config.memory, free, band));
    const held = kernel.planRequests(config, room, context);
    const short = kernel.shortfall(config, room, wanted, context);
    return {
      users: kernel.runningRequests(verdict, held, config.seqs),
      held,
      limitedBy: limitOf(config, verdict, held),
      ceiling: kernel.ceilingRequests(gpu.usable, config.weights, own),
      request: reservedBytes(config, context),
      verdict: kernel.words.verdicts[verdict],
      short: Math.max(short, config.memory - free),
      token: kernel.tokenBytes(config.heldTerms, context),
    };
  }

  /* --- machines of unequal accelerators ------------------------------------------------------------------ */

  const MOST_UNEQUAL = 16, MOST_EQUAL = 9999;

  /* The ids that a text such as "rtx-5090*2+rtx-3090" names, place by place; null where one is unknown. In an
     address a plus sign stands for a space. */
  function devicesOf(site, text) {
    const ids = [];
    for (const part of text.trim().split(/[+\s]+/)) {
      const [, id, times] = /^(.+?)(?:\*([1-9]\d{0,3}))?$/.exec(part) || [];
      if (!id || !site.gpus.some((gpu) => gpu.id === id)) return null;
      if (ids.length > MOST_EQUAL) return null;
      ids.push(...Array(Number(times || 1)).fill(id));
    }
    return new Set(ids).size > 1 && ids.length > MOST_UNEQUAL ? null : ids;
  }

  /* The same as one text: "rtx-5090*2+rtx-3090"; equal ones that follow each other are counted. */
  function machineId(ids) {
    const runs = [];
    for (const id of ids) {
      if (runs.length && runs[runs.length - 1][0] === id) runs[runs.length - 1][1] += 1;
      else runs.push([id, 1]);
    }
    return runs.map(([id, times]) => (times > 1 ? `${id}*${times}` : id)).join("+");
  }

  /* An accelerator by its id; of a machine of unequal ones the smallest, with all of them as `devices`. */
  function gpuOf(site, id) {
    const alone = site.gpus.find((one) => one.id === id);
    const ids = alone || !id ? [] : devicesOf(site, id) || [];
    if (!ids.length) return alone;
    const devices = ids.map((one) => site.gpus.find((gpu) => gpu.id === one));
    const least = devices.reduce((a, b) => (b.usable < a.usable ? b : a));
    const named = (name) =>
      [...new Set(devices)].map((gpu) => {
        const number = devices.filter((one) => one === gpu).length;
        return number > 1 ? `${number} × ${gpu[name]}` : gpu[name];
      }).join(" + ");
    return {
      ...least,
      id: machineId(ids),
      name: named("name"),
      short: named("short"),
      least: least.id,
      devices,
    };
  }

  const isPlain = (layout) => layout.devices === layout.tp && !layout.ep && layout.dcp === 1;

  /* Whether an accelerator stands in servers for a layout; unequal ones are spread over a whole machine. */
  const stands = (gpu, layout) =>
    gpu.devices
      ? layout.devices === gpu.devices.length && (isPlain(layout) || layout.row)
      : layout.row
      ? gpu.card
      : isPlain(layout) || gpu.linked;

  /* The configurations of a layout's ranks that differ, in their order; null where one cannot be configured. The
     sizes of the scheduler are those of the first device of a machine. */
  function ranksOf(site, model, gpu, layout, weightFormat, kvFormat, asked) {
    const first = gpu.devices && gpu.devices[0], agree = site.engine.family === "sglang";
    if (agree && first && layout.tp > 1) {
      const most = Math.max(...gpu.devices.map((one) => one.usable));
      if (gpu.usable < kernel.LEAST_OF_LARGEST * most) return null; // SGLang refuses such ranks
    }
    const given = asked === true ? { later: true } : asked || NOTHING;
    const [tokens, seqs] = first ? usualStep(model, first) : [];
    const options = first ? { ...given, batched: given.batched || tokens, seqs: given.seqs || seqs } : given;
    const ranks = layout.places.flatMap((place, stage) => {
      const here = first ? gpu.devices.slice(stage * layout.tp, (stage + 1) * layout.tp) : [gpu];
      return [...new Set(here)].map((device) =>
        configure(site, model, device, place, weightFormat, kvFormat, options)
      );
    });
    if (ranks.includes(null)) return null;
    // SGLang's ranks all take the pool of the one that has the least memory left.
    if (!agree || !ranks[1] || "most" in given) return ranks;
    const wholes = ranks.map((rank) => rank.whole || rank);
    const shorts = wholes.map(({ left, shorter }) => left + (shorter ? shorter.less : 0));
    const asks = { ...given, most: least(wholes, "left"), mostOfShort: Math.min(...shorts) };
    return ranksOf(site, model, gpu, layout, weightFormat, kvFormat, asks);
  }

  /* The rank with the least memory left, of equal ones the first. */
  const fullestOf = (ranks) => ranks.reduce((least, rank) => (rank.left < least.left ? rank : least));

  /* One configuration for each rank of a layout that differs; null where it cannot be configured.
     layout: an entry of site.layouts. */
  function deploy(site, model, gpu, layout, weightFormat, kvFormat, asked) {
    const ranks = stands(gpu, layout) && ranksOf(site, model, gpu, layout, weightFormat, kvFormat, asked);
    if (!ranks) return null;
    const apart = ranks.length > 1 && ranks[0].longest !== undefined;
    return together(layout, ranks, apart ? longestOf(ranks) : ranks[0].longest);
  }

  /* A deployment of ranks, whose sizes are those of the fullest. */
  const together = (layout, ranks, longest) => ({
    ...fullestOf(ranks),
    layout,
    ranks,
    devices: layout.devices,
    longest,
  });

  /* A configuration or a deployment of a server that is told a longest request of so many tokens. */
  function told(asked, context) {
    if (!asked.ranks) return at(asked, context);
    const ranks = asked.ranks.map((rank) => at(rank, context));
    return together(asked.layout, ranks, asked.longest);
  }

  /* The same with a pool that much larger, at every length. */
  function shifted(rank, bytes) {
    const moved = {
      ...rank,
      left: rank.left + bytes,
      room: rank.room + bytes,
      pool: Math.max(rank.left + bytes, 0),
      uncertainty: 0,
    };
    return rank.whole ? { ...moved, whole: shifted(rank.whole, bytes) } : moved;
  }

  const least = (list, name) => Math.min(...list.map((one) => one[name]));

  /* The answer of a deployment: what all its ranks hold, times its data ranks. Bytes are those of the fullest device. */
  function serve(deployment, context) {
    const ranks = deployment.ranks.map((rank) => at(rank, context));
    const each = ranks.map((rank) => answer(rank, context));
    const worst = each.reduce((most, one) => (codeOf(one.verdict) > codeOf(most.verdict) ? one : most));
    const all = (name) => kernel.ofAllRanks(least(each, name), deployment.layout.dp);
    const held = least(each, "held");
    const fullest = each[ranks.indexOf(fullestOf(ranks))];
    const code = codeOf(worst.verdict);
    return {
      users: all("users"),
      held: all("held"),
      limitedBy: limitOf(deployment, code, held),
      ceiling: all("ceiling"),
      request: fullest.request,
      verdict: worst.verdict,
      short: Math.max(...each.map((one) => one.short)),
      token: fullest.token,
    };
  }

  /* The requests of a deployment whose pools are larger by the error of the estimate. */
  const mostServed = (deployment, context) =>
    serve({
      ...deployment,
      ranks: deployment.ranks.map((rank) => shifted(at(rank, context), rank.uncertainty)),
    }, context).users;

  /* Tokens of a deployment's pools in requests of one length, as the engine's log counts them; Infinity where nothing
     limits them. See kvreport.accounting.capacity.printed_tokens. */
  function poolTokens(deployment, context) {
    const each = deployment.ranks.map((asked) => {
      const { rule, room, block, constant, terms } = at(asked, context);
      const request = kernel.requestBytes(constant, terms, context);
      const pool = rule ? kernel.poolRoom(rule, room, block) : room;
      const tokens = kernel.printedTokens(pool, block, request, context);
      const blocks = tokens < 0 ? Infinity : tokens;
      return rule ? Math.min(blocks, kernel.requestsBeside(rule, room, context) * context) : blocks;
    });
    return Math.min(...each) * deployment.layout.dp;
  }

  /* Whether a configuration's answer at a context is one that serves. */
  function serves(config, context) {
    const { users, verdict } = config.ranks ? serve(config, context) : answer(config, context);
    return users > 0 && kernel.words.serving_verdicts.includes(verdict);
  }

  /* site.json out of what travels: accelerators by field, and models whose names their slugs say as slugs alone. */
  function unpacked(site, models) {
    if (Array.isArray(site.gpus)) return site;
    const fields = Object.entries(site.gpus);
    const gpus = site.gpus.id.map((_, n) =>
      Object.fromEntries(fields.map(([name, list]) => [name, list[n]]))
    );
    for (const gpu of gpus) {
      gpu.memory += Math.ceil(gpu.usable * gpu.share);
      if (gpu.free) gpu.free = [gpu.usable - gpu.free[0], ...gpu.free.slice(1)];
    }
    return {
      sizing_layouts: [], // the explorer searches none
      ...site,
      models: models.map((one) =>
        Array.isArray(one) ? one : [one, one.slice(one.indexOf("--") + 2).replaceAll("-", " ")]
      ),
      gpus,
    };
  }

  /* A site's facts under another engine: that engine's file has the accelerators in the same order. What the
     architecture needs is numbered by the site's own kinds of devices. */
  function underEngine(site, other) {
    return {
      ...site,
      engine: { ...other.engine, default: site.engine.name },
      gpus: other.gpus.map((gpu, n) => ({ ...gpu, laid: site.gpus[n].kind })),
      published: other.models,
    };
  }

  /* A model's facts with what its file under another engine decides, `engine_profiles.in_runs` undone. */
  function decided(model, { lists, ...own }) {
    if (!lists) return { ...model, ...own };
    const each = (runs) => runs.flatMap((one) => (Array.isArray(one) ? Array(one[1]).fill(one[0]) : [one]));
    const spread = lists.map((one) => (Array.isArray(one) ? each(one) : one));
    const unfolded = (columns) => columns && each(columns).map((place) => spread[place]);
    const named = (group) =>
      Object.fromEntries(Object.entries(group).map(([name, columns]) => [name, unfolded(columns)]));
    return {
      ...model,
      ...own,
      loaded: named(own.loaded),
      plan: named(own.plan),
      reserve: own.reserve && own.reserve.map(unfolded),
    };
  }

  /* A known rate, or NaN: null stands for unknown in JSON. */
  const rate = (value) => (value === null || value === undefined ? NaN : value);

  /**
   * What a step asks of one device: a model's times file for one pair of formats and size, and the
   * device's rates.
   * @returns {Step}
   */
  function demandOf(times, peaks, weightFormat, kvFormat, size, ranks) {
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

  /* What the command of a deployment cannot say, in Python's kernel.words. */
  function commandNotes(site, { model, layout, weightFormat }) {
    const { checkpoint, nodes, nodes_by_data, nodes_by_rank } = kernel.words.command_notes;
    const fill = (text, given) => text.replace(/\{(\w+)\}/g, (_, name) => given[name]);
    const found = [];
    if (weightFormat !== "released" && !kernel.words.online_weights.includes(weightFormat)) {
      const format = site.weight_formats.find((one) => one.name === weightFormat)?.label || weightFormat;
      found.push(fill(checkpoint, { model: model.id, format }));
    }
    if (layout.nodes > 1) {
      found.push(fill(nodes, { nodes: layout.nodes, vllm: layout.dp > 1 ? nodes_by_data : nodes_by_rank }));
    }
    return found;
  }

  root.kvCapacity = {
    configure,
    devicesOf,
    machineId,
    gpuOf,
    stands,
    ranksOf,
    demandOf,
    reserveParts,
    told,
    shifted,
    longestOf,
    reservedBytes,
    wholeToken,
    answer,
    deploy,
    serve,
    serves,
    mostServed,
    poolTokens,
    commandNotes,
    underEngine,
    decided,
    unpacked,
    isPublished,
    usualStep,
  };
})(typeof globalThis === "object" ? globalThis : this);
