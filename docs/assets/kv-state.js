/* The one state that pages draw from: model, accelerator, layout, formats, engine, context, requests. It is
   read from the address and written back to it, under the keys that kvreport.query declares
   (kvKernel.words.url_keys); deployments and commands are made from it, and a line of free text becomes one.
   A field that is absent is the default. No page here. Needs kv-kernel.js and kv-capacity.js. */
(function (root) {
  "use strict";

  const kernel = root.kvKernel;
  const words = kernel.words;
  const KEYS = words.url_keys;

  /* --- values ----------------------------------------------------------------------------------------- */

  const whole = (text) => (/^[1-9]\d{0,9}$/.test(text) ? Number(text) : undefined);

  /* 32K, 1M, 8192 or 8,192 as a number of tokens. */
  function tokensOf(text) {
    const found = /^(\d+(?:\.\d+)?)\s*([km]?)$/i.exec(String(text).replace(/,(?=\d{3}\b)/g, "").trim());
    if (!found) return undefined;
    const unit = { "": 1, k: 1 << 10, m: 1 << 20 }[found[2].toLowerCase()];
    const value = Number(found[1]) * unit;
    return Number.isInteger(value) && value >= 1 && value <= 1 << 30 ? value : undefined;
  }

  /* 0.9 or 90% as a share. */
  function shareOf(text) {
    const found = /^(\d*\.?\d+)\s*(%?)$/.exec(String(text).trim());
    if (!found) return undefined;
    const value = found[2] ? Number(found[1]) / 100 : Number(found[1]);
    return value > 0 && value <= 1 ? value : undefined;
  }

  const onOff = (text) => (text === "1" || text === "true" || text === "on" ? true : undefined);

  /* How each field of a state is read; undefined where a value is not understood. */
  function readers(site) {
    const of = (list) => (text) => (list.includes(text) ? text : undefined);
    const slugs = site.models.map(([slug]) => slug);
    return {
      model: (text) => slugOf(slugs, text),
      models: (text) => slugOf(slugs, text),
      gpu: (text) => gpuOf(site, text),
      gpus: (text) => gpuOf(site, text),
      weights: of(site.weight_formats.map((one) => one.name)),
      kv: of(site.kv_formats.map((one) => one.name)),
      engine: (text) => engineOf(site, text),
      context: tokensOf,
      requests: whole,
      share: shareOf,
      batched: whole,
      seqs: whole,
      tp: (text) => (text === "fewest" ? "fewest" : whole(text)),
      pp: whole,
      dp: whole,
      dcp: whole,
      nodes: whole,
      ep: onOff,
      eager: onOff,
    };
  }

  const slugOf = (slugs, text) =>
    slugs.find((slug) => slug.toLowerCase() === text.replace("/", "--").toLowerCase());

  /* An accelerator's id, or that of a machine of unequal ones. */
  const gpuOf = (site, text) => {
    const ids = root.kvCapacity.devicesOf(site, text);
    return ids ? (new Set(ids).size > 1 ? root.kvCapacity.machineId(ids) : ids[0]) : undefined;
  };

  /* An engine's name in site.engines; "engine" is the old word for the site's own. */
  function engineOf(site, text) {
    const [name, release] = text.toLowerCase().split("@");
    if (name === "engine" || name === "released") return site.engine.name;
    const found = site.engines.find((one) => one.name === name && !release) ||
      site.engines.find((one) => one.family === name && release && covers(one, release));
    return found && found.name;
  }

  const numbers = (version) => version.split(".").map((part) => Number.parseInt(part, 10) || 0);
  const isBefore = (one, other) => {
    const [a, b] = [numbers(one), numbers(other)];
    for (let n = 0; n < 3; n += 1) if ((a[n] || 0) !== (b[n] || 0)) return (a[n] || 0) < (b[n] || 0);
    return false;
  };
  /* Of the newest rules the last release that was read is the end: nobody knows those of a later one. */
  const covers = (engine, release) =>
    Array.isArray(engine.versions) && !isBefore(release, engine.versions[0]) &&
    (engine.versions[1] ? isBefore(release, engine.versions[1]) : !isBefore(engine.version, release));

  /* --- the address ------------------------------------------------------------------------------------- */

  /* What a page's address asks for. fields: names of the state that the page has; also: further keys that the
     page reads itself; machines: whether it answers for unequal accelerators. Lists (models, gpus) are arrays. */
  function read(site, fields, also = [], search = location.search, machines = false) {
    /** @type {Record<string, any>} */
    const state = {};
    const reader = readers(site), ignored = [], said = {};
    /** @type {[number, string] | null} */
    let counted = null;
    const field = new Map(fields.map((name) => [keyOf(name), name])); // "constructor" is no key of it
    for (const [key, value] of new URLSearchParams(search)) {
      const unit = key === "unit" && ["GiB", "GB"].includes(value); // every page's own
      if (unit || ["h", "q", ...also].includes(key) || value === "") continue;
      const name = field.get(key);
      const understood = name && reader[name](value);
      const unequal = name?.startsWith("gpu") && understood?.includes("+");
      if (understood === undefined || understood === null || (unequal && !machines)) {
        ignored.push(`${key}=${value}`);
        continue;
      }
      if (name === "models" || name === "gpus") {
        state[name] = [...new Set([...(state[name] || []), understood])];
      } else if (name in said && said[name] !== understood) ignored.push(`${key}=${value}`);
      else state[name] = said[name] = understood;
      const times = name === "gpu" && root.kvCapacity.devicesOf(site, value);
      if (times && times.length > 1 && understood === times[0] && state.gpu === understood) {
        counted = [times.length, `${key}=${value}`];
      }
    }
    if (counted) {
      // "h100*8" says how many, unless the layout does.
      const [number, text] = counted, { tp, pp, dp } = named(state);
      if (tp * pp * dp === 1 && !("tp" in state)) state.tp = number;
      else if (tp * pp * dp !== number) ignored.push(`${text} (the layout says ${tp * pp * dp})`);
    }
    return { state, ignored };
  }

  const LONG = {
    context_tokens: "context",
    utilization: "share",
    max_batched_tokens: "batched",
    max_seqs: "seqs",
    tensor_parallel: "tp",
    pipeline_parallel: "pp",
    data_parallel: "dp",
    expert_parallel: "ep",
    decode_context_parallel: "dcp",
  };
  const SHORT = Object.fromEntries(Object.entries(LONG).map(([field, name]) => [name, field]));

  /* The key in the address of a field of the state. */
  const keyOf = (name) => KEYS[SHORT[name] || name];

  /* The part of an address that says a state; fields equal to `start` are left out. */
  function search(state, start = {}) {
    const written = new URLSearchParams();
    for (const name of Object.keys(reader_order)) {
      const value = state[name];
      if (value === undefined || value === null || value === false || value === "") continue;
      if (JSON.stringify(value) === JSON.stringify(start[name])) continue;
      for (const one of [].concat(value)) written.append(keyOf(name), one === true ? "1" : String(one));
    }
    const text = written.toString().replace(/%20|%2B/g, "+").replace(/%2F/gi, "/").replace(/%2C/gi, ",");
    return text ? `?${text}` : "";
  }

  const reader_order = Object.fromEntries(
    "model models gpu gpus tp pp dp ep dcp nodes weights kv engine context requests share batched seqs eager"
      .split(" ").map((name, n) => [name, n]),
  );

  /* --- deployments --------------------------------------------------------------------------------------- */

  const asked = (state) => ({
    context: state.context || kernel.USEFUL_TOKENS,
    share: state.share,
    batched: state.batched,
    seqs: state.seqs,
    eager: state.eager,
    adapted: state.adapted,
    ceiling: state.engine === "ceiling",
  });

  const isFewest = (state) => state.tp === undefined || state.tp === "fewest";

  const same = (state, layout) =>
    (isFewest(state) ? 1 : state.tp) === layout.tp && (state.pp || 1) === layout.pp &&
    (state.dp || 1) === layout.dp && Boolean(state.ep) === layout.ep && (state.dcp || 1) === layout.dcp;

  const hasLayout = (state) =>
    Boolean(state.pp > 1 || state.dp > 1 || state.ep || state.dcp > 1 || !isFewest(state));

  /* Those of the tables, and those that only a search tries, or who names one. */
  const everyLayout = (site) => [...site.layouts, ...site.sizing_layouts];

  /* The layouts that a state allows, fewest devices first: the one that it names, or every tensor-parallel size.
     For more GPUs than are published as tensors alone, every layout of as many. Empty where there is none. */
  function layouts(site, state) {
    if (hasLayout(state)) {
      const named = everyLayout(site).filter((layout) => same(state, layout));
      // More GPUs than one copy is split over by tensors alone: the layouts of as many.
      const alone = !(state.pp > 1 || state.dp > 1 || state.ep || state.dcp > 1);
      return named.length || !alone ? named : site.layouts.filter((layout) => layout.devices === state.tp);
    }
    return site.layouts.slice(0, site.sizes.length);
  }

  /* The layouts of a machine of unequal accelerators: the one that a state names, or tensors first, then stages. */
  function layoutsOf(site, gpu, state) {
    if (!gpu.devices) return layouts(site, state);
    const spans = everyLayout(site).filter((one) => root.kvCapacity.stands(gpu, one));
    return hasLayout(state) ? spans.filter((layout) => same(state, layout)) : spans;
  }

  /* The fields of a state that say a layout. */
  const stateOf = (layout) => ({
    tp: layout.tp,
    pp: layout.pp > 1 ? layout.pp : undefined,
    dp: layout.dp > 1 ? layout.dp : undefined,
    ep: layout.ep || undefined,
    dcp: layout.dcp > 1 ? layout.dcp : undefined,
    nodes: layout.nodes > 1 ? layout.nodes : undefined,
  });

  /* The weight formats that a model has numbers for, as released first. */
  const weightsOf = (site, model) =>
    site.weight_formats.map((one) => one.name).filter((name) =>
      (model.weights[name] || []).some((bytes) => bytes !== null)
    );

  /* The KV format that the engine takes by itself. */
  const kvOf = (model, gpu) => (model.kvs ? model.kvs[(gpu.devices || [gpu])[0].kind] : model.kv);

  /* Every deployment that a state allows, fewest devices first. */
  function deployments(site, model, gpu, state) {
    const formats = weightsOf(site, model);
    const own = formats.includes(model.form) ? model.form : formats[0];
    const weights = state.weights && formats.includes(state.weights) ? state.weights : own;
    return layoutsOf(site, gpu, state)
      .map((layout) =>
        kvDeploy(site, model, gpu, layout, weights, state.kv || kvOf(model, gpu), asked(state))
      )
      .filter(Boolean);
  }

  const kvDeploy = (site, model, gpu, layout, weights, kv, options) =>
    layout.places.every((place) => (model.weights[weights] || [])[place] !== undefined)
      ? root.kvCapacity.deploy(site, model, gpu, layout, weights, kv, options)
      : null;

  /* The context that a state's answer is for. */
  const contextOf = (state, model) => state.context || Math.min(kernel.USEFUL_TOKENS, model.limit);

  /* The deployment that answers a state: the fewest devices that run what is asked; else the most that there are.
     Null where nothing can be configured. */
  function pick(site, model, gpu, state) {
    const possible = deployments(site, model, gpu, state);
    const context = Math.min(contextOf(state, model), model.limit);
    const wanted = state.requests || 1;
    return possible.find((one) => root.kvCapacity.serve(one, context).users >= wanted) ||
      possible.filter((one) => root.kvCapacity.serve(one, context).users > 0).pop() ||
      possible[possible.length - 1] || null;
  }

  /* As `pick`; where no number of GPUs of one machine serves a request, the fewest over several machines that do, and of
     their layouts a published one where there is one, and the one that serves most. */
  function fewest(site, model, gpu, state) {
    const found = pick(site, model, gpu, state);
    const context = Math.min(contextOf(state, model), model.limit);
    const users = (one) => (one ? root.kvCapacity.serve(one, context).users : 0);
    if (users(found) || hasLayout(state) || !gpu.linked) return found;
    const wide = everyLayout(site).filter((layout) => layout.nodes > 1)
      .flatMap((layout) => deployments(site, model, gpu, { ...state, ...stateOf(layout) }))
      .filter((one) => users(one));
    const searched = (one) => Number(!site.layouts.includes(one.layout));
    wide.sort((a, b) => a.devices - b.devices || searched(a) - searched(b) || users(b) - users(a));
    return wide[0] || found;
  }

  /* What of a state its answer does not have, as an address says it: a format that the model is not offered in, several
     machines for a layout of one. Empty where there is no deployment, whose answer says so. */
  function unused(state, deployment) {
    if (!deployment) return [];
    const { layout, weightFormat, model } = deployment;
    const missed = [];
    const miss = (name, why) => missed.push(`${keyOf(name)}=${state[name]} (${why})`);
    if (state.weights && state.weights !== weightFormat) miss("weights", `not offered for ${model.name}`);
    if (state.nodes && state.nodes !== layout.nodes) miss("nodes", `the layout has ${layout.nodes}`);
    return missed;
  }

  /* --- commands ---------------------------------------------------------------------------------------------- */

  const quote = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\"'\"'")}'`);

  const tokenWords = (n) => {
    if (n >= 1 << 20 && n % (1 << 20) === 0) return `${n >> 20}M`;
    return n >= 1 << 10 && n % (1 << 10) === 0 ? `${n >> 10}K` : String(n);
  };

  /* The layout that a state names; what it leaves out is 1. */
  const named = (state) => ({
    tp: isFewest(state) ? 1 : state.tp,
    pp: state.pp || 1,
    dp: state.dp || 1,
    ep: Boolean(state.ep),
    dcp: state.dcp || 1,
    nodes: state.nodes || 1,
  });

  /* The command that computes the answer of a state: that of its deployment, or, where the files have none, that of the
     layout that it names. The fewest GPUs of an engine without numbers here are found by a search. */
  function answerCommand(site, model, gpu, state, deployment) {
    const search = !deployment && !hasLayout(state) && !gpu.local && !state.eager &&
      !root.kvCapacity.isPublished(model, gpu);
    return (search ? searchCommand : estimateCommand)(site, model, gpu, state, deployment);
  }

  function searchCommand(site, model, gpu, state) {
    const said = ["kvreport", "size", model.id, "--gpu", gpu.id, "--concurrent", String(state.requests || 1)];
    const flag = (name, value) => said.push(words.flags[name], String(value));
    flag("context_tokens", tokenWords(contextOf(state, model)));
    if (state.weights && state.weights !== "released") flag("weights", state.weights);
    if (state.kv) flag("kv", state.kv);
    if (state.engine && state.engine !== site.engine.default) flag("engine", state.engine);
    if (state.share !== undefined) flag("utilization", state.share);
    if (state.batched) flag("max_batched_tokens", state.batched);
    if (state.seqs) flag("max_seqs", state.seqs);
    return said.map(quote).join(" ");
  }

  function estimateCommand(site, model, gpu, state, deployment) {
    const said = ["kvreport", "estimate", model.id, "--gpu", gpu.id];
    const layout = deployment ? deployment.layout : hasLayout(state) ? named(state) : null;
    const flag = (name, value) => said.push(words.flags[name], ...(value === true ? [] : [String(value)]));
    if (layout && layout.tp > 1) flag("tensor_parallel", layout.tp);
    if (layout && layout.pp > 1) flag("pipeline_parallel", layout.pp);
    if (layout && layout.dp > 1) flag("data_parallel", layout.dp);
    if (layout && layout.ep) flag("expert_parallel", true);
    if (layout && layout.dcp > 1) flag("decode_context_parallel", layout.dcp);
    if (layout && layout.nodes > 1) flag("nodes", layout.nodes);
    flag("context_tokens", tokenWords(contextOf(state, model)));
    // A release whose stored formats nobody read is answered in another one.
    const weights = deployment ? deployment.weightFormat : state.weights;
    if (weights && weights !== "released") flag("weights", weights);
    if (state.kv && state.kv !== kvOf(model, gpu)) flag("kv", state.kv);
    if (state.engine && state.engine !== site.engine.default) flag("engine", state.engine);
    else if (gpu.local) flag("engine", gpu.local.name);
    // Without an engine the command answers for llama.cpp there.
    else if (gpu.at_home) flag("engine", site.engine.default || site.engine.name);
    if (state.share !== undefined) flag("utilization", state.share);
    if (state.batched) flag("max_batched_tokens", state.batched);
    if (state.seqs) flag("max_seqs", state.seqs);
    if (state.eager) flag("eager", true);
    if (state.requests) said.push("--require", String(state.requests));
    return said.map(quote).join(" ");
  }

  /* The address of the sizer for a case: requests as long as its context, unless `more` says how long prompts are. */
  function sizerAddress({ model, gpu, requests, context, weights, kv, engine }, more = {}) {
    const length = context && tokenWords(context);
    const values = {
      model,
      gpu,
      concurrent: requests,
      prompt: length && "none",
      context: length,
      average: length,
      weights,
      kv: kv === "fp8" ? kv : undefined,
      engine,
      ...(requests && { burst: "1", spares: "0" }), // requests at once are the peak
      ...more,
    };
    return `sizer/?${new URLSearchParams(
      Object.entries(values).filter(([, value]) => value).map(([name, value]) => [
        name,
        String(value),
      ]),
    )}`;
  }

  /* The command that serves a deployment, as kvreport.estimation.commands.serving_command says it; null where
     the engine has none. context: the longest request that it is to take. */
  function serveCommand(site, state, deployment, context) {
    const server = site.engine.family;
    const flags = words.serve[server];
    if (!flags) return null;
    const { model, layout } = deployment;
    const sglang = server === "sglang";
    const ranks = kernel.stageRanks(layout.tp, layout.dp);
    const said = [...flags.start, model.id];
    const across = sglang ? ranks : layout.tp;
    if (across > 1) said.push(flags.tensor_parallel, String(across));
    if (layout.pp > 1) said.push(flags.pipeline_parallel, String(layout.pp));
    if (layout.dp > 1) {
      said.push(flags.data_parallel, String(layout.dp), ...(sglang ? [flags.enable_dp_attention] : []));
    }
    if (layout.ep) said.push(flags.expert_parallel, ...(sglang ? [String(ranks)] : []));
    if (layout.dcp > 1) said.push(flags.decode_context_parallel, String(layout.dcp));
    if (layout.nodes > 1) {
      const local = Math.floor(layout.dp / layout.nodes);
      if (!sglang && local > 0 && layout.dp > 1) said.push(flags.data_parallel_size_local, String(local));
      else said.push(flags.nodes, String(layout.nodes));
    }
    said.push(flags.context, String(context));
    // SGLang divides the number among its data ranks.
    if (state.seqs) said.push(flags.max_seqs, String(state.seqs * (sglang ? layout.dp : 1)));
    const usual = deployment.gpu.share === site.engine.utilization ? undefined : deployment.gpu.share;
    const share = state.share === null ? undefined : state.share ?? usual; // null: the engine's own
    if (share !== undefined) said.push(flags.utilization, String(share));
    if (words.online_weights.includes(deployment.weightFormat)) {
      said.push(flags.weights, deployment.weightFormat);
    }
    if (deployment.kvFormat !== kvOf(model, deployment.gpu)) {
      said.push(flags.kv, words.kv_names[server][deployment.kvFormat] || deployment.kvFormat);
    }
    if (state.batched) said.push(flags.max_batched_tokens, String(state.batched));
    if (state.eager) said.push(flags.eager);
    return said.map(quote).join(" ");
  }

  /* The command that compares two engine releases for the model, accelerator, layout and context of a state. */
  function diffCommand([before, after], { model, gpu, tp, context }) {
    const flags = words.flags;
    const said = ["kvreport", "diff", before, after];
    if (model) said.push("--model", model.replace("--", "/"));
    if (gpu && !gpu.includes("+")) said.push("--gpu", gpu);
    if (tp > 1) said.push(flags.tensor_parallel, String(tp));
    if (context) said.push(flags.context_tokens, String(context));
    return said.map(quote).join(" ");
  }

  root.kvState = {
    read,
    search,
    keyOf,
    tokensOf,
    shareOf,
    engineOf,
    isBefore,
    asked,
    hasLayout,
    layouts,
    stateOf,
    weightsOf,
    kvOf,
    deployments,
    contextOf,
    everyLayout,
    pick,
    fewest,
    unused,
    named,
    answerCommand,
    estimateCommand,
    serveCommand,
    diffCommand,
    sizerAddress,
    quote,
  };
})(typeof globalThis === "object" ? globalThis : this);
