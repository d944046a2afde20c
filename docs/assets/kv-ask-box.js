/* The box for free text: a question becomes a state of the page, or the way to where it is answered stands in the
   answer's place. Needs kv-picker.js, kv-ask.js, kv-answers.js. */
(function () {
  "use strict";

  const { $, $$, load, make, gib, count } = kvreport;
  const NAMED = 8; /* layouts of which a sentence has the names */
  const SERVER = 8; /* GPUs of a usual server */

  function askBox(form) {
    const base = new URL(form.dataset.kvAsk, location.href);
    const field = $("input", form), told = $("[data-kv-understood]", form);
    let pasted = "";
    // A field of one line drops the line breaks, without which a deployment file is none.
    field.addEventListener("paste", (event) => {
      pasted = event.clipboardData.getData("text");
    });
    const flat = (text) => text.replace(/\s/g, "");
    const answer = async () => {
      kvreport.busy();
      const typed = flat(pasted) === flat(field.value) ? pasted : field.value;
      const [site, file] = await Promise.all([
        kvreport.facts(base),
        load(new URL("picker.json", base)),
      ]);
      await kvreport.ready; // what the address says of the form counts too
      kvreport.asking = false;
      const names = kvreport.asked.prepared(file);
      const found = kvreport.asked.understand(typed, site, names);
      told.textContent = kvreport.asked.said(found, names);
      const message = found.log || found.file ? null : await messageIn(typed, base);
      if (message) told.textContent = "Understood: a message of an engine.";
      const way = message || kvreport.asked.wayTo(typed, found, site, names);
      if (way) {
        const number = way.smallest
          ? await smallestOf(found, base, way.fewest)
          : way.fewest
          ? (await fewestOn(way.among || site.known, found, base)).said
          : way.cards
          ? await cardsOf(found, base)
          : way.saving
          ? await savedByPrefix(way.saving, base)
          : way.sides
          ? await sidesOf(found, base)
          : way.slot
          ? await slotOf(way.slot, base)
          : way.needs
          ? await needed(found, base)
          : way.token
          ? await tokenOf(found, base)
          : way.image
          ? await imageOf(way.image, base)
          : way.atOnce
          ? await atOnce(found, base)
          : way.timed
          ? await speedOf(found, base)
          : way.memory
          ? await mainMemory(way.memory, base)
          : "";
        const shown = number || (way.machine && await onMachine(way.machine, found.state)) ||
          await inCase(way, base);
        const rules = way.releases ? await kvreport.result.rulesBetween(base, site, way.releases) : [];
        const answered = shown || rules.length;
        const said = [shown, answered ? way.rest ?? way.said : way.said].filter(Boolean).join(" ");
        const pages = way.search ? await pagesFor(field.value).catch(() => []) : [];
        if (pages.length && told.textContent.startsWith("Nothing")) told.textContent = "";
        kvreport.unanswered?.(
          {
            ...way,
            said: pages.length ? "These pages are about it:" : said,
            more: rules,
            links: way.search ? withLog([...pages, ...way.links], field.value) : way.links,
          },
          way.question || field.value,
          found.state,
        );
        return;
      }
      const chosen = !found.state.gpu && isChosen();
      const gpu = found.state.gpu || kvreport.now().gpu;
      const counted = found.counts && found.state.model && await fewestOn([gpu], found, base);
      const laid = found.layouts && await layoutsOn(gpu, found, base, found.state.ep);
      const best = (counted || laid)?.layout;
      const layout = best && kvState.stateOf(best);
      await kvreport.go?.({ ...kvreport.now(), ...fresh(found.state), ...found.state, ...layout });
      kvreport.remark?.(
        [
          (NEEDED.test(typed) || found.kvs?.length > 1) && await needed(found, base),
          counted && counted.said,
          laid && [laid.said, unlaid(found, laid)].filter(Boolean).join(" "),
          LONGEST.test(typed) && await longestFor(base),
          await shortage(found, base),
          notUsed(found, site, chosen),
          await saving(found, base),
          await settingsOf(found, base),
        ]
          .filter(Boolean)
          .join(" "),
        ...laid?.latent
          ? [
            " ",
            make(
              "a",
              { href: new URL("questions/mla-tp-or-dp/", kvreport.root).href },
              "TP or DP for MLA models",
            ),
          ]
          : [],
        ...otherReleases(found),
      );
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const touch = matchMedia("(pointer: coarse)").matches;
      if (touch) field.blur(); // the keyboard covers the answer
      answer().then(() => touch && $("[data-kv-slot=headline]")?.scrollIntoView({ block: "center" })).catch(
        kvreport.unloaded,
      );
    });
    // The form was sent before its script was there, or the reader came back: the question stands in the address.
    const restore = () => {
      const sent = new URLSearchParams(location.search).get("ask");
      if (!sent) return;
      field.value = sent;
      setTimeout(() => kvreport.ready?.then(answer).catch(kvreport.unloaded));
    };
    restore();
    return { restore };
  }

  /* The pages that the search of the site finds first: [[title, address]]. */
  let index = null;
  async function pagesFor(text) {
    const worker = await (index ||= searching().catch((error) => {
      index = null;
      throw error;
    }));
    const items = await new Promise((done) => {
      worker.onmessage = ({ data }) => done(data.data.items);
      worker.postMessage({ type: 2, data: text });
    });
    return items.slice(0, 3).map(([{ title, location: page }]) => [
      new DOMParser().parseFromString(title, "text/html").body.textContent,
      page,
    ]);
  }

  /* The worker of the theme's search, with the index set up. */
  async function searching() {
    const data = await load(new URL("search/search_index.json", kvreport.root));
    const worker = new Worker(new URL("assets/kv-search.js", kvreport.root));
    await new Promise((done, failed) => {
      worker.onmessage = done;
      worker.onerror = failed;
      worker.postMessage({ type: 0, data });
    });
    return worker;
  }

  /* The fewest of some accelerators that serve a question's model in one copy, over every layout: as a sentence, and the
     layout of the first. */
  async function fewestOn(gpus, { state }, base) {
    const site = await kvreport.siteFor(base, state.engine);
    const model = await kvreport.modelFor(base, site, state.model);
    if (!model) return { said: "" };
    const asked = kvreport.settled(site, { ...state, tp: undefined });
    const context = Math.min(kvState.contextOf(asked, model), model.limit), wanted = asked.requests || 1;
    const tried = new Set();
    const found = gpus.map((id) => {
      const gpu = kvCapacity.gpuOf(site, id), told = (layout) => kvreport.result.devicesText(layout, gpu);
      const made = kvState.everyLayout(site).flatMap((layout) =>
        kvState.deployments(site, model, gpu, { ...asked, ...kvState.stateOf(layout) })
      ).sort((a, b) => a.devices - b.devices);
      for (const { layout } of made) tried.add(kvreport.result.ways(layout));
      const one = made.find((each) => kvCapacity.serve(each, context).users >= wanted);
      const near = made.find((each) =>
        each.devices < (one?.devices ?? Infinity) && kvCapacity.mostServed(each, context) >= wanted
      );
      return {
        layout: one?.layout,
        memory: one && one.devices * gpu.usable,
        said: one && told(one.layout),
        near: near && told(near.layout),
      };
    });
    const able = found.filter(({ layout }) => layout).sort((a, b) => a.memory - b.memory);
    const near = found.map((one) => one.near).filter(Boolean).join("; ");
    const perhaps = near && ` Within the error of the estimate, fewer may be enough: ${near}.`;
    const what = `${kvreport.plural(wanted, "request|requests")} of ${kvreport.tokens(context)} tokens`;
    const each = able.map(({ said, memory }) =>
      able.length > 1 ? `${said}, ${gib(memory, 0)} GiB usable` : said
    );
    if (able.length) {
      return {
        said: `Fewest GPUs that serve ${what} of ${model.name}: ${each.join("; ")}.${perhaps}`,
        layout: able[0].layout,
      };
    }
    const ways = [...tried].slice(0, NAMED).join(", ");
    return {
      said: tried.size
        ? `One copy of ${model.name} serves ${what} in none of these layouts: ${ways}${
          tried.size > NAMED ? ` and ${count(tried.size - NAMED)} more` : ""
        }.${perhaps}`
        : `${model.name} runs in no layout of this page.`,
    };
  }

  /* The layouts of as many GPUs as a question says, else of a server, by the requests that they serve: as a sentence, and the
     first. */
  async function layoutsOn(id, { state, laid = [] }, base, experts = false) {
    const site = await kvreport.siteFor(base, state.engine);
    const model = await kvreport.modelFor(base, site, state.model), gpu = kvCapacity.gpuOf(site, id);
    if (!model || !gpu) return null;
    const { tp, pp, dp } = kvState.named(state), devices = tp * pp * dp > 1 ? tp * pp * dp : SERVER;
    const asked = kvreport.settled(site, { ...state, tp: undefined });
    const context = Math.min(kvState.contextOf(asked, model), model.limit);
    const every = kvState.everyLayout(site).filter((layout) =>
      layout.devices === devices && (layout.nodes === 1 || devices > SERVER)
    )
      .flatMap((layout) => kvState.deployments(site, model, gpu, { ...asked, ...kvState.stateOf(layout) }))
      .map((one) => ({ layout: one.layout, users: kvCapacity.serve(one, context).users }))
      .sort((a, b) => b.users - a.users);
    // Expert parallelism that the question names is the answer's, whatever serves more.
    const named = every.filter(({ layout }) => laid.some((one) => isLaid(one, layout)));
    const own = named.length ? named : every.filter(({ layout }) => !experts || layout.ep);
    const able = own.length ? own : every;
    if (!able.length) return null;
    const what = `of ${kvreport.tokens(context)} tokens`, where = kvreport.onDevices(devices, gpu.short);
    const listed = (some) =>
      some.map(({ layout, users }) => `${kvreport.result.ways(layout)}: ${count(users)}`).join("; ");
    const others = every.filter((one) => !able.includes(one) && one.users);
    const said = able[0].users
      ? `Requests ${what} at once on ${where}, by layout: ${listed(able)}.`
      : `No layout ${experts ? "with expert parallelism " : ""}serves a request ${what} on ${where}: ${
        able.map(({ layout }) => kvreport.result.ways(layout)).join(", ")
      }.`;
    const without = others.length
      ? ` ${named.length ? "Other layouts" : "Without expert parallelism"}: ${listed(others)}.`
      : "";
    return {
      layout: able[0].users || experts ? able[0].layout : undefined,
      latent: model.kind === "latent",
      layouts: every.map((one) => one.layout),
      said: `${said}${without}${able[0].users || without ? " The sizer also compares their speed." : ""}`,
    };
  }

  /* A layout that a question names and that has no numbers here, with the command that has them; "" for others. */
  function unlaid({ laid = [], state }, { layouts }) {
    const own = laid.find((one) => !layouts.some((layout) => isLaid(one, layout)));
    if (!own) return "";
    const flags = kvKernel.words.flags, { gpu } = kvreport.now();
    const split = { tensor_parallel: own.tp, pipeline_parallel: own.pp, data_parallel: own.dp };
    const said = Object.entries(split).filter(([, number]) => number > 1).map(([name, number]) =>
      `${flags[name]} ${number}`
    ).join(" ");
    return `This page has no numbers for ${said}; the command has: kvreport estimate ${
      state.model.replace("--", "/")
    } --gpu ${gpu} ${said}.`;
  }

  /* Whether a layout is one of tensors, stages and data ranks that a question names. */
  const isLaid = (one, layout) =>
    ["tp", "pp", "dp"].every((name) => layout[name] === one[name]) && layout.dcp === 1;

  /* Why the layout that a question names serves nothing, and what others of as many GPUs serve; "" where it serves. */
  async function shortage({ state, layouts }, base) {
    const now = kvreport.now();
    const { pp = 1, dp = 1, ep, dcp = 1 } = state;
    if (layouts || !(pp > 1 || dp > 1 || ep || dcp > 1)) return "";
    const here = await kvreport.siteFor(base, now.engine),
      model = await kvreport.modelFor(base, here, now.model);
    const told = kvreport.settled(here, now), gpu = kvCapacity.gpuOf(here, now.gpu);
    if (!model || !gpu || gpu.devices) return "";
    const { deployment, answer } = kvreport.result.facts(
      here,
      model,
      gpu,
      told,
      kvState.pick(here, model, gpu, told),
    );
    if (deployment && answer.users) return "";
    const others = await layoutsOn(now.gpu, { state: now }, base);
    return [
      deployment && deployment.reserve &&
      `Of the ${gib(deployment.memory)} GiB per GPU that the engine may use, loaded weights take ${
        gib(deployment.resident)
      } GiB, and activations, libraries and graphs take ${gib(deployment.reserve)} GiB.`,
      others && others.said,
    ].filter(Boolean).join(" ");
  }

  /* What a prompt that requests share saves where the engine stores it once, as a sentence; for the model of the form where the
     question names none. */
  async function savedByPrefix({ model: named, context, requests }, base) {
    const site = await kvreport.siteFor(base), slug = named || kvreport.now().model;
    const model = await kvreport.modelFor(base, site, slug);
    const held = model?.held[model.kv]?.[0];
    if (!held) return "";
    const [constant, terms] = held.kinds ? held.kinds[0] : held;
    const states = constant > 0 ? await statesOf(model, constant, base) : "";
    if (!(context && requests > 1)) return states;
    const once = kvKernel.requestBytes(0, terms, context);
    return `Prefix caching stores a prompt of ${count(context)} tokens once for ${
      count(requests)
    } requests to ${model.name}${named ? "" : " (the model in the form)"}: ${
      gib(once)
    } GiB of KV cache in place of ${gib(requests * once)} GiB, which saves ${
      gib((requests - 1) * once)
    } GiB. ${states}`.trim();
  }

  /* Whether engines cache prefixes of a model with recurrent states, and what its states take, as sentences. */
  async function statesOf(model, bytes, base) {
    const { vllm } = await load(new URL("engine-rules.json", base));
    const last = (name) => vllm.findLast(([, , , rule]) => rule === name);
    const [since, , on] = last("state_prefix_caching"), [, , slots] = last("state_slots_cached");
    return `Yes, prefix caching works with ${model.name}, which has recurrent states. vLLM has it on by default ${
      on === "yes" ? `since ${since}` : `until ${since}`
    }, and SGLang too (--disable-radix-cache turns it off). The states of one request take ${
      gib(bytes)
    } GiB and are not shared. With prefix caching, vLLM reserves ${slots} of them for each request.`;
  }

  /* What each side of a comparison holds, and which holds more, as a sentence: sides are models, accelerators with as many GPUs
     as the question says, or engines. Without a number, all have as many GPUs as the one that needs most. */
  async function sidesOf(
    { each, gpus, also = [], engines, unpublished = [], forms = [], formats = {}, state },
    base,
  ) {
    const own = state.gpu || kvreport.now().gpu;
    const listed = each.length ? each : [own, ...gpus].map((id) => [id, state.tp]);
    const near = unpublished.flatMap((one) => one.near.map(({ name }) => name));
    const names = engines.length + near.length > 1 ? [...new Set([...engines, ...near])] : [state.engine];
    const sides = [];
    for (const engine of names) {
      const site = await kvreport.siteFor(base, engine);
      for (const slug of [state.model, ...also]) {
        const model = await kvreport.modelFor(base, site, slug);
        if (model) {
          const weights = formats[slug];
          sides.push(
            ...listed.map(([id, tp]) => ({ site, model, gpu: kvCapacity.gpuOf(site, id), tp, weights })),
          );
        }
      }
    }
    if (forms.length) sides.splice(0, 1, ...forms.map((form) => ({ ...sides[0], ...form, set: form })));
    if (!sides.length || sides.some(({ gpu }) => !gpu)) return "";
    const answered = ({ site, model, gpu, tp, weights = state.weights, set }) => {
      const asked = kvreport.settled(site, { ...state, ...set, gpu: gpu.id, tp, weights });
      return kvreport.result.facts(site, model, gpu, asked, kvState.pick(site, model, gpu, asked));
    };
    const capital = (text) =>
      text.replace(/^(one|on|with|weights)\b/, (one) => one[0].toUpperCase() + one.slice(1));
    const fewest = Math.max(...sides.map((side) => answered(side).deployment?.layout.tp || 1));
    const several = (of) => new Set(sides.map(of)).size > 1;
    const models = several(({ model }) => model.name), engined = several(({ site }) => site.engine.name);
    const devices = each.length || several(({ gpu }) => gpu.id) || several(({ tp }) => tp);
    const apart = Object.keys(formats).length > 0;
    const released = ({ weights }, form) =>
      !weights ? "as released" : `in ${form?.label || weights.toUpperCase()}`;
    const told = sides.map((side) => {
      const tp = side.tp || fewest,
        one = answered({ ...side, tp }),
        where = kvreport.onDevices(tp, side.gpu.short);
      const wanted = side.weights || state.weights, used = one.deployment?.weightFormat;
      const form = side.site.weight_formats.find(({ name }) => name === (wanted || used));
      const other = wanted && used && wanted !== used; // the model has no numbers in this format
      const held = one.answer?.users && !other ? kvCapacity.poolTokens(one.deployment, one.context) : 0;
      const what = [
        models && side.model.name + (apart ? ` with weights ${released(side, form)}` : ""),
        engined && side.site.engine.label,
        forms.length && !devices &&
        (kvreport.result.settings(side.set).join(", ") ||
          `weights in ${form?.label || wanted.toUpperCase()}`),
        devices && where,
      ].filter(Boolean).join(" on ");
      return {
        held,
        where,
        form,
        what: capital(what),
        said: held
          ? `KV cache for ${count(held)} tokens, ${
            kvreport.plural(one.answer.users, "request|requests")
          } of ${one.names.context} at once, one context of at most ${count(one.deployment.longest)} tokens`
          : other
          ? "no numbers here, because only some copies of the model have this format"
          : `no request of ${one.names.context} fits`,
        other,
      };
    });
    const [most, next] = [...told].sort((a, b) => b.held - a.held), [{ model, site }] = sides;
    const winner = next && most.held > next.held && !told.some(({ other }) => other)
      ? `${most.what} ${/^(\d+ ×|Weights|[\d,]+ batched)/.test(most.what) ? "hold" : "holds"} more context${
        next.held ? `: ${kvreport.fixed(most.held / next.held, 1)} times as many tokens` : ""
      }.`
      : "";
    const same = [
      !models && model.name,
      !devices && `on ${told[0].where}`,
      !engined && `with ${site.engine.label}`,
    ].filter(Boolean).join(" ");
    const form = told.find((one) => one.form)?.form,
      set = forms.some((one) => !("tp" in one || "weights" in one));
    return `${capital(same)}${
      form && !apart && (devices || set || !forms.length) &&
        told.every((one) => !one.form || one.form === form)
        ? ` and weights ${form.label.replace(/^(?!as )/, "in ")}`
        : ""
    }. ${winner} ${told.map((one) => (one.what ? `${one.what}: ${one.said}` : one.said)).join(". ")}.`;
  }

  /* What the page of questions that is the first way to an answer says of the case; "" for other pages. */
  async function inCase({ links: [[, page]] }, base) {
    if (!/^questions\/[a-z-]+\/(\?|$)/.test(page)) return "";
    for (const name of ["lessons", "question"]) await kvreport.script(`kv-${name}.js`);
    return kvreport.questions.inCase(new URL(page, kvreport.root), base).catch(() => "");
  }

  /* What a page of questions computes for a model, one slot of llama.cpp and Q4_K_M: its words for an accelerator. */
  const slotWords = (model, gpu, base) => caseWords(["slot_context"], model, gpu, base);

  async function caseWords(names, model, gpu, base) {
    for (const name of ["lessons", "question"]) await kvreport.script(`kv-${name}.js`);
    const used = { words: new Set(names), engines: new Set(), kvs: new Set() };
    return kvreport.questions.vocabulary(await kvreport.questions.factsFor(base, model, used), gpu);
  }

  /* What one slot of llama.cpp leaves free on a machine at home, and its longest context, as a sentence; "" where it is not
     computed. */
  async function slotOf({ model, gpu, context, quantized, ollama }, base) {
    const site = await kvreport.facts(base), own = await kvreport.modelFor(base, site, model);
    if (!gpu) return slotNeeds(own, context, quantized ? "q8_0" : "f16", ollama, base);
    const device = kvCapacity.gpuOf(site, gpu);
    const words = device && await slotWords(model, gpu, base).catch(() => null);
    const of = (word, cache) => {
      try {
        return words[word]({ tokens: context, cache });
      } catch {
        return 0;
      }
    };
    const caches = quantized ? ["q8_0", "f16"] : ["f16", "q8_0"];
    const longest = caches.map((cache) => [cache, words ? of("slot_context", cache) : 0]).filter(([, n]) =>
      n
    );
    if (!words) return "";
    const what = `${own.name} in Q4_K_M on one ${device.short}, one slot of llama.cpp`;
    if (!longest.length) return `${what}: it does not fit with all layers on the GPU.`;
    const [cache] = caches, free = context && of("slot_free", cache);
    const held = context &&
      (free
        ? ` A context of ${kvreport.tokens(context)} fits and leaves ${gib(free, 1)} of ${
          gib(device.usable, 1)
        } GiB free.`
        : ` A context of ${kvreport.tokens(context)} does not fit.`);
    const said = `${what}.${held || ""} Longest context: ${
      longest.map(([name, n]) => `${count(n)} tokens with a cache in ${name}`).join(", ")
    }.`;
    if (!ollama) return said;
    const small = longest[0][0] === "q8_0" ? " OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0" : "";
    return `${said} Start Ollama with OLLAMA_CONTEXT_LENGTH=${
      free ? Math.min(context, longest[0][1]) : longest[0][1]
    }${small} OLLAMA_NUM_PARALLEL=1: each additional slot needs its own cache.`;
  }

  /* The memory of one slot of llama.cpp with all layers on a GPU that nobody named, and its parts, as a sentence. */
  async function slotNeeds(model, context, cache, ollama, base) {
    const length = Math.min(context || kvKernel.USEFUL_TOKENS, model.limit);
    try {
      const words = await slotWords(model.slug, "", base), own = words.slot_weights();
      const next = words.slot_beside({ tokens: length, cache }), whole = words.kv_request({ tokens: length });
      const kept = cache === "f16" ? ` (KV cache ${gib(whole)}, compute buffers ${gib(next - whole)})` : "";
      return `${model.name} in Q4_K_M needs ${gib(own + next, 1)} GiB on the GPU with one slot of ${
        kvreport.tokens(length)
      } tokens in ${ollama ? "Ollama" : "llama.cpp"}: ${gib(own)} GiB of weights and ${
        gib(next)
      } GiB next to them${kept}. The driver takes its own memory in addition.${
        ollama ? ` Ollama’s default context is shorter: set OLLAMA_CONTEXT_LENGTH=${length}.` : ""
      }`;
    } catch {
      return "";
    }
  }

  /* The main memory that a model takes on a computer without a GPU, as a sentence; "" where it is not computed. */
  async function mainMemory({ model, context, ram }, base) {
    if (!model) return ram ? inMemory(ram) : "";
    const site = await kvreport.facts(base), own = await kvreport.modelFor(base, site, model);
    const length = Math.min(context || 8192, own.limit);
    const needed = (await slotWords(model, "", base).catch(() => null))?.slot_memory({ tokens: length });
    const fits = needed < ram * 2 ** 30 ? "less" : "more";
    return needed
      ? `${own.name} in Q4_K_M takes ${gib(needed, 1)} GiB of main memory with one slot of ${
        kvreport.tokens(length)
      } tokens${ram ? `, ${fits} than the ${ram} GB of RAM` : ""}.`
      : "";
  }

  /* The models of the page for computers without a GPU that fit, the largest first, as a sentence. */
  async function inMemory(ram) {
    const text = await (await fetch(new URL("questions/no-gpu/", kvreport.root))).text();
    const rows = $$("article tbody tr", new DOMParser().parseFromString(text, "text/html")).map((row) => [
      row.cells[0].textContent.trim(),
      parseFloat(row.cells[1].textContent.replace(/,/g, "")),
    ]).filter(([, size]) => size < ram).sort((a, b) => b[1] - a[1]);
    const [first] = rows;
    return first
      ? `In ${ram} GB, these run with one slot of 32K tokens, the largest first, next to the operating system: ${
        rows.map(([name, size]) => `${name} (${size} GiB, ${Math.round((100 * size) / ram)}%)`).join(", ")
      }.`
      : "";
  }

  /* What the page of a machine at home says of a model, or of the models to run on it, as a sentence. */
  async function onMachine(machine, { model, context }) {
    const text = await (await fetch(new URL(`local/${machine}/`, kvreport.root))).text();
    const page = new DOMParser().parseFromString(text, "text/html"),
      plain = (node) => node.textContent.replace(/\s+/g, " ").trim();
    if (!model) {
      const rows = context ? $$("#contexts-table tbody tr", page) : [];
      const longest = rows.map((row) => [plain($("a", row.cells[0])), plain(row.cells[1])]).filter((
        [, text],
      ) => kvState.tokensOf(text) >= context);
      const names = longest.slice(0, NAMED).map(([name, text]) => `${name} (${text})`).join(", ");
      const more = longest.length > NAMED ? ` and ${count(longest.length - NAMED)} more` : "";
      return [
        plain($(".kv-lead", page) || page.createElement("p")),
        rows.length &&
        (longest.length
          ? `These are for 32K tokens (128K for long documents). With ${
            kvreport.tokens(context)
          } tokens in Q4_K_M, the largest first: ${names}${more}.`
          : `These are for 32K tokens (128K for long documents). No model in Q4_K_M holds ${
            kvreport.tokens(context)
          } tokens.`),
      ].filter(Boolean).join(" ");
    }
    return $$("article table", page).map((table) => {
      const cells = $(`tbody th a[href$="models/${model}/"]`, table)?.closest("tr").cells;
      if (!cells || !$("caption", table)) return "";
      const heads = $$("thead th", table).map(plain);
      return `${plain($("caption", table))}: ${plain($("a", cells[0]))}, ${
        [...cells].slice(1).map((cell, n) => `${heads[n + 1].replace(/ usual$/, "")} ${plain(cell)}`).join(
          ", ",
        )
      }.`;
    }).filter(Boolean).join(" ");
  }

  /* How many requests of people are served at once, as a sentence. */
  async function atOnce({ state, crowd }, base) {
    const site = await kvreport.siteFor(base, state.engine),
      model = await kvreport.modelFor(base, site, state.model);
    const gpu = kvCapacity.gpuOf(site, state.gpu), asked = kvreport.settled(site, state);
    const one = model &&
      kvreport.result.facts(site, model, gpu, asked, kvState.fewest(site, model, gpu, asked));
    if (!one?.deployment || !one.answer) return "";
    const where = kvreport.result.devicesText(one.deployment.layout, gpu);
    return `${model.name} serves ${
      kvreport.plural(one.answer.users, "request|requests")
    } of ${one.names.context} at once on ${where}${
      crowd.users > 1
        ? `, which is ${one.answer.users >= crowd.users ? "enough" : "not enough"} if all ${
          count(crowd.users)
        } ask at the same moment`
        : ""
    }.`;
  }

  /* The best-case speed of a question's case at the peak rates of its accelerator, as a sentence; "" where it is not computed. */
  async function speedOf({ state }, base) {
    const site = await kvreport.siteFor(base), model = await kvreport.modelFor(base, site, state.model);
    const gpu = kvCapacity.gpuOf(site, state.gpu),
      asked = kvreport.settled(site, { ...state, engine: undefined });
    const { deployment, answer, context } = kvreport.result.facts(
      site,
      model,
      gpu,
      asked,
      kvState.fewest(site, model, gpu, asked),
    );
    const { tp, devices } = deployment?.layout || {};
    if (!answer?.users || devices !== tp) return "";
    const words = await caseWords(["decode_time", "prefill_time"], state.model, state.gpu, base);
    const options = { tp, tokens: context, weights: state.weights, kv: state.kv };
    const users = state.requests ? Math.min(state.requests, answer.users) : answer.users;
    const [one, many, first] = [
      words.decode_time(options),
      words.decode_time({ ...options, batch: users }),
      words.prefill_time(options),
    ];
    const length = kvreport.tokens(context);
    return `Best case at the peak rates of the data sheet: on ${
      kvreport.onDevices(tp, gpu.short)
    }, ${model.name} writes at most ${kvreport.fixed(1 / one, 0)} tokens/s for one request of ${length}. ${
      kvreport.plural(users, "request gets|requests get")
    } at most ${kvreport.fixed(1 / many, 0)} tokens/s each (${
      count(Math.round(users / many))
    } in total). Prefill of ${length} takes at least ${
      first < 1 ? `${Math.round(first * 1e3)} ms` : `${kvreport.fixed(first, 1)} s`
    }. Real servers are slower.`;
  }

  const NEEDED =
    /\bhow (?:big|large) (?:is|are) (?:the |a )?(?:\w+ )?(?:kv[ -]?cache|cache|weights)\b|\bhow (?:much (?:of )?(?:gpu )?(?:kv[ -]?cache|memory|vram|ram)|many gi?b)\b|\b(?:kv[ -]?cache|memory|vram) (?:size|needed|usage|footprint|requirements?|of|for)\b|\b(?:size|weights) of\b|\bstates? (?:size|memory)\b/i;
  const LONGEST =
    /\b(how long|longest|largest|biggest|max(?:imum)?|what|which) (?:an? |of )?(?:possible )?(context|sequence|prompt|length)/i;

  /* The longest context that as many requests as the page's state has can have at once, as a sentence. */
  async function longestFor(base) {
    const now = kvreport.now(), wanted = now.requests;
    if (!(wanted > 1)) return "";
    const site = await kvreport.siteFor(base, now.engine);
    const model = await kvreport.modelFor(base, site, now.model), gpu = kvCapacity.gpuOf(site, now.gpu);
    if (!model || !gpu) return "";
    const found = kvState.fewest(site, model, gpu, kvreport.settled(site, now));
    if (!found) return "";
    const longest = kvCapacity.longestOf(found.ranks, Math.ceil(wanted / found.layout.dp));
    return longest
      ? `${count(wanted)} requests at once on ${
        kvreport.result.devicesText(found.layout, gpu)
      } can have at most ${count(longest)} tokens each.`
      : "";
  }

  /* Bytes that a question's model needs, of weights and of the cache of its requests in each format asked for, as a sentence. */
  async function needed({ state, kvs }, base) {
    const site = await kvreport.siteFor(base, state.engine);
    const model = state.model && await kvreport.modelFor(base, site, state.model);
    const weights = model?.weights[state.weights || model.form]?.[0];
    if (!weights) return "";
    const context = Math.min(kvState.contextOf(state, model), model.limit), requests = state.requests || 1;
    const asked = kvs || [state.kv || model.kv];
    const caches = asked.map((kv) => {
      const held = model.held[kv]?.[0];
      const [constant, terms] = held?.kinds ? held.kinds[0] : held || [];
      const form = kvs || state.kv ? ` in ${kvreport.result.label(site.kv_formats, kv)}` : "";
      const states = constant > 0 ? ` (${gib(requests * constant)} GiB of it in recurrent states)` : "";
      return terms
        ? `${gib(requests * kvKernel.requestBytes(constant, terms, context))} GiB of KV cache${form}${states}`
        : `no KV cache${form}`;
    });
    return `${model.name} needs ${gib(weights)} GiB for its weights and ${caches.join(" or ")} for ${
      kvreport.plural(requests, "request|requests")
    } of ${kvreport.tokens(context)} tokens, besides what the engine reserves.`;
  }

  /* Bytes of a token in the cache of a whole model, in the formats that a question asks for, as a sentence. */
  async function tokenOf({ state, kvs }, base) {
    const site = await kvreport.siteFor(base, state.engine),
      model = await kvreport.modelFor(base, site, state.model);
    const each = (kvs || (state.kv ? [state.kv] : [model.kv, "fp8"])).flatMap((kv) => {
      const held = model.held[kv]?.[0], [, terms] = held?.kinds ? held.kinds[0] : held || [];
      const form = kvreport.result.label(site.kv_formats, kv);
      return terms ? [`${kvreport.fixed(kvKernel.tokenBytes(terms, 2 ** 29) / 1024, 1)} KiB in ${form}`] : [];
    });
    return each.length
      ? `In the KV cache of ${model.name}, each token takes ${
        [...new Set(each)].join(", ")
      }, without windows and states.`
      : "";
  }

  /* What the settings of a question change in the pool, on as many GPUs as the answer has without them, as a sentence. */
  async function settingsOf({ state }, base) {
    const none = { share: undefined, batched: undefined, seqs: undefined, eager: undefined };
    if (Object.keys(none).every((name) => state[name] === undefined)) return "";
    const now = kvreport.now(), here = await kvreport.siteFor(base, now.engine);
    const model = await kvreport.modelFor(base, here, now.model), gpu = kvCapacity.gpuOf(here, now.gpu);
    if (!model || !gpu || gpu.devices) return "";
    const told = (values) => kvreport.settled(here, { ...now, ...values });
    const named = kvState.hasLayout(state)
      ? {}
      : { tp: undefined, pp: undefined, dp: undefined, ep: undefined };
    const usual = kvState.fewest(here, model, gpu, told({ ...named, ...none }));
    const own = usual && kvState.deployments(here, model, gpu, told(kvState.stateOf(usual.layout)))[0];
    if (!own) return "";
    const context = Math.min(kvState.contextOf(now, model), model.limit);
    const [before, after] = [usual, own].map((one) => Math.max(kvCapacity.poolTokens(one, context), 0));
    if (!Number.isFinite(before)) return "";
    const where = kvreport.result.devicesText(usual.layout, gpu),
      what = kvreport.result.settings(state).join(", ");
    const first = kvState.fewest(here, model, gpu, told({})).layout;
    return `On ${where}, the KV pool holds ${count(after)} tokens with ${what}, compared with ${
      count(before)
    } by default: ${count(Math.abs(before - after))} ${after > before ? "more" : "fewer"}.${
      first.devices !== usual.layout.devices
        ? ` With ${what}, one request of ${kvreport.tokens(context)} needs ${
          kvreport.result.devicesText(first, gpu)
        }, for which the answer below is.`
        : ""
    }`;
  }

  /* Tokens of an image in a model, and the cache that they take, as a sentence; "" where they are not known. */
  async function imageOf({ model, pixels: [wide, high] }, base) {
    const site = await kvreport.facts(base), own = await kvreport.modelFor(base, site, model);
    const words = await caseWords(["image_tokens"], model, "", base);
    try {
      const number = words.image_tokens({ wide, high });
      const bytes = words.kv_per_token({});
      return `An image of ${wide} × ${high} pixels becomes ${
        count(number)
      } tokens in ${own.name}. They take ${gib(number * bytes)} GiB of KV cache and count like ${
        count(number)
      } tokens of text: add them to the context, and fewer requests fit.`;
    } catch {
      return "";
    }
  }

  /* The accelerators of at most some memory that serve a question's model alone, by format of its weights, as a sentence. */
  async function cardsOf({ state, atMost }, base) {
    const site = await kvreport.siteFor(base, state.engine);
    const model = await kvreport.modelFor(base, site, state.model);
    if (!model) return "";
    const asked = { ...state, tp: 1 }, wanted = state.requests || 1;
    const context = Math.min(kvState.contextOf(kvreport.settled(site, asked), model), model.limit);
    const small = site.gpus.filter(({ usable }) => usable <= atMost * 2 ** 30);
    const formats = site.weight_formats.filter(({ name }) => [undefined, name].includes(state.weights));
    const found = formats.map(({ name, label }) => {
      const cards = small.filter(({ id }) => {
        const gpu = kvCapacity.gpuOf(site, id), told = kvreport.settled(site, { ...asked, weights: name });
        const one = kvState.pick(site, model, gpu, told);
        return one?.weightFormat === name && kvCapacity.serve(one, context).users >= wanted;
      });
      return cards.length ? `${label}: ${cards.map(({ short }) => short).join(", ")}` : "";
    }).filter(Boolean);
    const what = `${kvreport.plural(wanted, "request|requests")} of ${
      kvreport.tokens(context)
    } tokens of ${model.name}`;
    const size = `of at most ${atMost} GB`;
    return found.length
      ? `One GPU ${size} serves ${what} with ${site.engine.label} and weights ${found.join("; ")}.`
      : `No single GPU ${size} serves ${what} with ${site.engine.label}.`;
  }

  /* The accelerators with the least memory that serve a question's model alone, and the fewest known ones where none does or
     they are asked for too, as sentences. */
  async function smallestOf({ state }, base, severalToo) {
    const site = await kvreport.siteFor(base, state.engine);
    const model = await kvreport.modelFor(base, site, state.model);
    if (!model) return "";
    const told = kvreport.settled(site, { ...state, tp: 1 }), wanted = state.requests || 1;
    const context = Math.min(kvState.contextOf(told, model), model.limit);
    const able = site.gpus.filter(({ id }) => {
      const one = kvState.pick(site, model, kvCapacity.gpuOf(site, id), told);
      return one && kvCapacity.serve(one, context).users >= wanted &&
        (!state.weights || one.weightFormat === state.weights);
    }).sort((a, b) => a.usable - b.usable);
    const form = site.weight_formats.find(({ name }) => name === state.weights);
    const what = `${kvreport.plural(wanted, "request|requests")} of ${
      kvreport.tokens(context)
    } tokens of ${model.name} with ${site.engine.label}, weights ${
      form ? `in ${form.label}` : "as released"
    }`;
    const several = able.length && !severalToo ? "" : (await fewestOn(site.known, { state }, base)).said;
    const single = able.length
      ? `The single GPUs with the least memory that serve ${what}: ${
        able.slice(0, 5).map(({ short, usable }) => `${short} (${gib(usable)} GiB usable)`).join(", ")
      }.`
      : `No single GPU serves ${what}.`;
    return `${single} ${several}`.trim();
  }

  const MESSAGE =
    /\b\w*(Error|Exception)\b|\b(INFO|WARNING|ERROR)\b|out of memory|\bKV cache (size|memory)|\d Gi?B\b.*\bmemory/i;

  /* The answer to the message of an engine that does not start, where a question quotes one; null for other questions.
     The lines that are known are those of the page for logs. */
  async function messageIn(text, base) {
    if (text.length < 40 || !/\d/.test(text) || !/\(\d|["“`]|error|memory/i.test(text)) return null;
    const [{ served }] = await Promise.all([
      load(new URL("log-lines.json", base)),
      ...["kernel", "capacity", "loglines"].map((name) => kvreport.script(`kv-${name}.js`)),
    ]);
    const reading = kvLogLines.readLog(served, text);
    const end = !reading.error && kvLogLines.ended(served, reading);
    if (
      !end ||
      !reading.recognised.some(({ pattern, facts }) => pattern === end.pattern && Object.keys(facts).length)
    ) {
      return null;
    }
    const { changes: [change], concurrency } = kvLogLines.diagnose(reading, null, null);
    const values = change && { value: typeof change.value === "number" ? count(change.value) : change.value };
    const first = change && kvKernel.words.changes[change.change].replaceAll("{value}", values.value);
    // Half the bits of a cache hold twice as many tokens, and no more.
    const room = (name) => name === "smaller_cache" && concurrency && 1 / concurrency > 2;
    const others = end.remedies.filter(([, words]) => !first?.startsWith(words.replace("--", ""))).map((
      [name, words],
    ) => words + (room(name) ? ", which makes room for 2 times as many and is not enough alone" : ""));
    const says = reading.recognised.find(({ pattern }) => pattern === end.pattern).says;
    return {
      said: `${says} ${first ? `To start, ${first}. Or ` : "To start: "}${
        first && concurrency
          ? `make room for ${kvreport.fixed(1 / concurrency, 1)} times as many tokens: `
          : ""
      }${others.join("; ")}.`,
      links: [
        ["read this message as a log", `log/#${new URLSearchParams({ log: text })}`],
        ["what refusals mean", "refusals/"],
      ],
    };
  }

  /* A line of a log is read where logs are. It goes along in the part of an address that no server sees. */
  const withLog = (links, text) =>
    text.length < 40 || !MESSAGE.test(text) ? links : [
      ["read this message as a log", `log/#${new URLSearchParams({ log: text })}`],
      ...links.filter(([, page]) => page.split("#")[0] !== "log/"),
    ];

  /* What of a question its answer does not depend on, and what was taken where nothing was said. */
  function notUsed({ missed, asks, state }, site, chosen) {
    const words = [...missed, ...asks];
    const gpu = kvCapacity.gpuOf(site, kvreport.now().gpu);
    return [
      words.length && `Not used: ${words.join(", ")}.`,
      !state.gpu && gpu &&
      (chosen
        ? `On ${gpu.name}, as chosen in the form.`
        : `No GPU was named: this is the answer for ${gpu.name}.`),
    ].filter(Boolean).join(" ");
  }

  /* Releases of the same name, where the question does not say which: each a link to its answer. */
  function otherReleases({ others = [], state }) {
    const links = others.slice(0, 4).map(({ id, name }) =>
      make("a", { href: kvState.search({ ...kvreport.now(), ...state, model: id }) }, name)
    );
    return links.length
      ? [" Other releases of this name: ", ...links.flatMap((one, n) => n ? [", ", one] : one), "."]
      : [];
  }

  /* Whether the reader chose the accelerator of the form: another than the page was printed with stands there. */
  const isChosen = () => new URLSearchParams(location.search).has("gpu");

  /* What the formats of a question save, against those of the release: bytes of a request and of the weights. */
  async function saving({ saves, state }, base) {
    if (!saves) return "";
    if (!state.kv && !state.weights) {
      return "Name a format, such as FP8 cache or INT4 weights, to see what it saves.";
    }
    const now = kvreport.now();
    const here = await kvreport.siteFor(base, now.engine),
      model = await kvreport.modelFor(base, here, now.model);
    const gpu = kvCapacity.gpuOf(here, now.gpu);
    const of = (asked) => {
      const told = kvreport.settled(here, asked);
      return kvreport.result.facts(here, model, gpu, told, kvState.fewest(here, model, gpu, told));
    };
    const small = of(now);
    if (!small.deployment) return "";
    const { layout } = small.deployment;
    const usual = of({ ...now, ...kvState.stateOf(layout), kv: undefined, weights: undefined });
    if (!usual.deployment) return "";
    const each = (one) => [
      one.answer.request,
      one.deployment.resident,
    ];
    const [request, weights] = each(small), [own, loaded] = each(usual);
    const per = layout.devices > 1 ? " per GPU" : "";
    const less = (what, few, many) =>
      `${what} ${few < many ? "saves" : "does not save memory:"} ${
        few < many ? `${gib(many - few)} GiB${per} (` : ""
      }${gib(few)} in place of ${gib(many)} GiB${few < many ? ")" : ""}`;
    return [
      state.kv &&
      `${
        less(`${state.kv === "fp8" ? "An" : "A"} ${state.kv.toUpperCase()} cache`, request, own)
      } in each request.`,
      state.weights && `${less(`The format of the weights`, weights, loaded)} of weights.`,
      `Concurrent requests: ${count(small.answer.users)} in place of ${count(usual.answer.users)}.`,
      sameRequests(here, model, gpu, state),
    ].filter(Boolean).join(" ");
  }

  /* How many GPUs serve as many requests as the release's formats do, with the formats of a question, as a sentence. */
  function sameRequests(here, model, gpu, state) {
    const now = kvreport.settled(here, {
      ...kvreport.now(),
      tp: state.tp,
      pp: state.pp,
      dp: state.dp,
      ep: state.ep,
    });
    const context = Math.min(kvState.contextOf(now, model), model.limit);
    const users = (one) => (one ? kvCapacity.serve(one, context).users : 0);
    const { tp: _, pp: __, dp: ___, ep: ____, ...free } = now;
    const usual = { ...(state.requests ? free : now), kv: undefined, weights: undefined };
    const wide = kvState.fewest(here, model, gpu, usual), wanted = state.requests || users(wide);
    if (!wanted || users(wide) < wanted) return "";
    const told = (one) => kvreport.result.devicesText(one.layout, gpu);
    const shown = kvState.fewest(here, model, gpu, kvreport.settled(here, kvreport.now()));
    const same = kvState.deployments(here, model, gpu, { ...now, ...kvState.stateOf(wide.layout) })[0];
    const least = kvState.pick(here, model, gpu, { ...free, requests: state.requests });
    const few = kvState.pick(here, model, gpu, { ...free, requests: wanted });
    const requests = kvreport.plural(wanted, "request|requests");
    const fewer = users(few) >= wanted && few.devices < wide.devices;
    return [
      state.tp === undefined && least.devices < wide.devices && least.devices < few.devices &&
      `One request fits on ${told(least)} in place of ${told(wide)}.`,
      same && shown?.layout !== wide.layout &&
      `On ${told(wide)}: ${count(users(same))} requests in place of ${count(users(wide))}.`,
      fewer
        ? `${requests} then fit on ${told(few)} in place of ${told(wide)}.`
        : `The same ${requests} need as many GPUs: ${told(wide)}.`,
    ].filter(Boolean).join(" ");
  }

  /* A new question has no layout, format or length of the one before. */
  const fresh = (state) => ({
    ...Object.fromEntries(
      "pp dp ep dcp nodes weights kv engine context requests share batched seqs eager".split(" ").map((
        name,
      ) => [name, undefined]),
    ),
    tp: state.tp === undefined ? "fewest" : state.tp,
  });

  Object.assign(kvreport, { askBox });
})();
