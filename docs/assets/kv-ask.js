/* Free text becomes a state: "llama 70b 2x4090 32k fp8". What was understood is said, and what was not is named.
   Needs kv-kernel.js, kv-state.js and the names of kv-picker.js. */
(function () {
  "use strict";

  const { plainName, count, tokens } = kvreport;

  const FORMATS = {
    released: ["weights", "released"],
    bf16: ["weights", "bf16"],
    fp16: ["weights", "bf16"],
    "16bit": ["weights", "bf16"],
    fp8: ["weights", "fp8"],
    "8bit": ["weights", "fp8"],
    int4: ["weights", "int4"],
    awq: ["weights", "int4"],
    gptq: ["weights", "int4"],
    "4bit": ["weights", "int4"],
  };
  const FILLERS = new Set(
    ("a an and at can context for from gpu gpus how in it many model of on one per run size tokens token " +
      "the to what will with x fit fits serve does do i my me is users user requests request please using use single " +
      "that models llm llms need needs want running memory max longest largest biggest maximum most best cheapest cost costs price prices compare compared vs versus and or which")
      .split(
        " ",
      ),
  );

  /* [pattern, the change of the state, what it says] of a word or of two; the words are lower case. */
  /** @type {[RegExp, (m: string[]) => object, (m: string[]) => string][]} */
  const PATTERNS = [
    [/^tp=?(\d+)$/, (m) => ({ tp: Number(m[1]) }), (m) => `tensor parallel ${m[1]}`],
    [/^pp=?(\d+)$/, (m) => ({ pp: Number(m[1]) }), (m) => `pipeline parallel ${m[1]}`],
    [/^dp=?(\d+)$/, (m) => ({ dp: Number(m[1]) }), (m) => `data parallel ${m[1]}`],
    [/^dcp=?(\d+)$/, (m) => ({ dcp: Number(m[1]) }), (m) => `decode context parallel ${m[1]}`],
    [/^(\d{1,2}) (?:gpus?|cards?)$/, (m) => ({ tp: Number(m[1]) }), (m) => `${m[1]} GPUs`],
    [/^ep$/, () => ({ ep: true }), () => "expert parallel"],
    [
      /^(\d+)\s?(users?|requests?|people|concurrent)$/,
      (m) => ({ requests: Number(m[1]) }),
      (m) => `${m[1]} concurrent requests`,
    ],
    [/^(\d{1,3}(?:\.\d+)?)%$/, (m) => ({ share: Number(m[1]) / 100 }), (m) => `memory share ${m[1]}%`],
    [
      /^(?:-{0,2}(?:gpu[-_]?)?(?:memory[-_]?)?)?(?:util|utilization|share)=?\s?(0?\.\d+)$/,
      (m) => ({ share: Number(m[1]) }),
      (m) => `memory share ${m[1]}`,
    ],
    [/^(?:kv|cache)[= ](fp8|bf16)$/, (m) => ({ kv: m[1] }), (m) => `KV cache ${m[1].toUpperCase()}`],
    [/^(fp8|bf16) (?:kv|cache)$/, (m) => ({ kv: m[1] }), (m) => `KV cache ${m[1].toUpperCase()}`],
  ];

  /* Formats of the cache without an answer here; weights in them are another question. */
  const OTHER_CACHE = /^(int[48]|[48]-?bit|nvfp4|turboquant\S*|q\d\S*) (kv|cache|kv-cache)$/;

  /* Programs and files of one computer: another page has their numbers. */
  const AT_HOME = /^(ollama|llama\.?cpp|llama-server|lm-?studio|gguf|mlx|q[2-8](_[a-z0-9]+)*)$/;

  const MAC = /^(mac|macs|macbook|macbooks|imac)$/;
  const MAC_FORM = /^(studio|mini|pro|air)$/;

  const RELEASE = /^v?\d{1,2}(\.\d{1,2})?$/;
  const CARD = /^(rtx|gtx|rx|geforce|radeon|arc|quadro)$/;
  const ONE = /^(a|an|one|single)$/;

  /* {state, understood: [words], missed: [words], home: [words of programs at home], gpus: [ids of further
     accelerators, which a comparison has], unlisted: a name with another release number than the model's} of a line
     of text. */
  function understand(text, site, names) {
    const words = text.toLowerCase().replace(/[?!;]/g, " ").replace(/,(?!\d{3})/g, " ")
      .replace(/(\d)\s+gi?b\b/g, "$1gb").replace(/(\d)gib\b/g, "$1gb")
      .replace(/\s[x×*]\s*(?=\d\d?(\s|$))/g, " ").replace(/(\d)\s*[x×*]\s*(?=[a-z0-9])/g, "$1x ")
      .split(/\s+/).filter(Boolean);
    const state = {}, understood = [], missed = [], left = [];
    let devices = null;
    const apart = machineIn(names, words.flatMap((word) => word.split(/(\+)/)).filter(Boolean));
    if (apart) {
      state.gpu = apart.id;
      understood.push(apart.said);
      words.splice(0, words.length, ...apart.rest);
    }
    for (let n = 0; n < words.length; n += 1) {
      const pair = `${words[n]} ${words[n + 1] || ""}`.trim();
      if (OTHER_CACHE.test(pair)) {
        missed.push(pair);
        n += 1;
        continue;
      }
      const taken = [[pair, 2], [words[n], 1]].find(([phrase, size]) => {
        if (size === 2 && words[n + 1] === undefined) return false;
        for (const [pattern, change, say] of PATTERNS) {
          const found = pattern.exec(phrase);
          if (found) {
            Object.assign(state, change(found));
            understood.push(say(found));
            return true;
          }
        }
        return false;
      });
      if (taken) {
        n += taken[1] - 1;
        continue;
      }
      const times = /^(\d{1,3})x$/.exec(words[n]);
      if (times) {
        devices = Number(times[1]);
        continue;
      }
      left.push(words[n]);
    }
    const home = left.filter((word) => AT_HOME.test(word));
    const rest = engineIn(site, left.filter((word) => !home.includes(word)), state, understood);
    const stated = state.tp;
    const named = apart ? rest : gpuIn(names, rest, state, understood, devices, home);
    const gpus = [];
    const after = !apart && state.gpu ? furtherGpus(names, named, understood, gpus) : named;
    if (devices && state.tp === undefined) state.tp = devices;
    // "8x b200 dp8": the devices of all ranks and stages together.
    const others = (state.dp || 1) * (state.pp || 1);
    if (stated === undefined && state.tp % others === 0) state.tp /= others;
    // A Mac has one memory: its size tells which one.
    const mac = after.some((word) => MAC.test(word));
    const ofMac = (word, n) =>
      MAC.test(word) || /^\d+gb$/.test(word) || (MAC_FORM.test(word) && MAC.test(after[n - 1]));
    if (mac) home.push(after.filter(ofMac).join(" "));
    const cards = cardsIn(mac ? after.filter((word, n) => !ofMac(word, n)) : after, home);
    const more = sizesIn(
      state.gpu ? cards : memoryIn(site, cards, state, understood, home),
      state,
      understood,
    );
    const unlisted = modelIn(names.models, more, state, understood, missed);
    checkpointOf(names.models, words, state, understood);
    return { state, understood, missed, home, gpus, unlisted };
  }

  /* "vllm 0.25", "sglang": an engine of the site. */
  function engineIn(site, words, state, understood) {
    const rest = [];
    for (let n = 0; n < words.length; n += 1) {
      const release = /^\d+\.\d+(\.\d+)?$/.test(words[n + 1] || "") ? words[n + 1] : null;
      const [own, stated] = words[n].split("@");
      const name = kvState.engineOf(site, release || stated ? `${own}@${release || stated}` : own);
      if (name && /^[a-z]/.test(own) && site.engines.some((one) => one.family === own || one.name === own)) {
        if (name !== site.engine.default) state.engine = name;
        understood.push(site.engines.find((one) => one.name === name).label);
        if (release) n += 1;
      } else rest.push(words[n]);
    }
    return rest;
  }

  /* The longest run of words that is a name of an accelerator. */
  function gpuIn({ gpus, models }, words, state, understood, devices, home) {
    for (let size = Math.min(5, words.length); size >= 1; size -= 1) {
      for (let n = 0; n + size <= words.length; n += 1) {
        const phrase = plainName(words.slice(n, n + size).join(" "));
        // "a 16 GB card" is no A16.
        if (size > 1 && ONE.test(words[n]) && /^\d/.test(words[n + 1])) continue;
        if (phrase.length < 2 || (/^\d+$/.test(phrase) && phrase.length < 4)) continue;
        let found = gpus.find((gpu) => gpu.names.includes(phrase));
        if (!found) continue;
        const before = words.slice(0, n), after = words.slice(n + size);
        const memory = /\d+gb/.exec(plainName(found.name))?.[0];
        if (memory && /^\d+gb$/.test(after[0]) && after[0] !== memory) {
          // The same of another size: among the accelerators, or among the machines people have at home.
          const other = gpus.find(({ plain }) => plain.includes(phrase) && plain.includes(after[0]));
          if (other) after.shift();
          else if (/^m\d/.test(phrase)) {
            home.push(`${words.slice(n, n + size).join(" ")} ${after.shift()}`);
            return [...before, ...after];
          }
          found = other || found;
        }
        state.gpu = found.id;
        const number = /^[1-9]\d?$/;
        const counts = number.test(before.at(-1)) && !inAName(models, before.at(-2), before.at(-1));
        if (!devices && counts) state.tp ??= devices = Number(before.pop());
        if (!devices && number.test(after[0])) state.tp ??= devices = Number(after.shift());
        if (/^\d+gb$/.test(after[0]) && (!memory || memory === after[0])) after.shift();
        if (!devices && ONE.test(before.at(-1))) state.tp ??= devices = 1;
        understood.push(
          devices > 1 ? `${devices} × ${found.name}` : devices ? `one ${found.name}` : found.name,
        );
        return [...before, ...after];
      }
    }
    return words;
  }

  /* Accelerators after the first one: "h100 vs mi300x". */
  function furtherGpus(names, words, understood, gpus) {
    let rest = words;
    for (;;) {
      const state = {}, said = [], home = [];
      const after = gpuIn(names, rest, state, said, null, home);
      if (!state.gpu || home.length) return rest;
      gpus.push(state.gpu);
      understood.push(`and ${said.join("")}`);
      rest = after;
    }
  }

  /* Unequal accelerators of one machine, as "2x 3090 + 3060": {id, said, rest}; null where no plus sign stands between
     accelerators. */
  function machineIn(names, words) {
    if (!words.includes("+")) return null;
    const parts = [[]];
    for (const word of words) {
      if (word === "+") parts.push([]);
      else parts.at(-1).push(word);
    }
    const ids = [], said = [], rest = [];
    for (const part of parts) {
      const number = part.findIndex((word) => /^\d{1,2}x$/.test(word));
      const times = number < 0 ? null : parseInt(part[number], 10);
      const state = {}, home = [];
      const others = gpuIn(names, part.filter((_, n) => n !== number), state, said, times, home);
      if (!state.gpu || home.length) return null;
      const count = times || state.tp || 1;
      ids.push(count > 1 ? `${state.gpu}*${count}` : state.gpu);
      rest.push(...others);
    }
    return { id: ids.join("+"), said: said.join(" + ").replaceAll("one ", ""), rest };
  }

  /* Whether a number ends a name: the 4 of "mistral small 4" is no number of devices. */
  const inAName = (models, word, number) =>
    word !== undefined &&
    models.some(({ words }) => words.some((one, n) => one === plainName(word) && words[n + 1] === number));

  /* Cards that have no numbers here, such as "rtx 4060 8gb": the page of machines has them. */
  function cardsIn(words, home) {
    const first = words.findIndex((word, n) => CARD.test(word) && /^[a-z]?\d{3,4}/.test(words[n + 1] || ""));
    if (first < 0) return words;
    let last = first + 2;
    while (/^(ti|super|xt|xtx|gre|laptop|mobile|\d+gb)$/.test(words[last] || "")) last += 1;
    home.push(words.slice(first, last).join(" "));
    return [...words.slice(0, first), ...words.slice(last)];
  }

  /* A size of memory alone, such as "48gb": the accelerator with it that most clouds rent out. */
  function memoryIn(site, words, state, understood, home) {
    const place = words.findIndex((word) => /^\d+gb$/.test(word));
    if (place < 0) return words;
    const bytes = parseInt(words[place], 10) * 2 ** 30;
    const rest = words.filter((_, n) => n !== place);
    // A process can use a tenth less than the label says, at most.
    const found =
      site.gpus.filter((gpu) => gpu.usable <= bytes && gpu.usable >= bytes * 0.9 && gpu.rental === 2)
        .sort((a, b) => b.providers - a.providers)[0];
    if (found) {
      state.gpu = found.id;
      state.tp ??= 1;
      understood.push(`${words[place].toUpperCase().replace("GB", " GB")}, as ${found.name} has`);
    } else home.push(words[place]);
    return rest;
  }

  /* Context and formats. */
  function sizesIn(words, state, understood) {
    return words.filter((word) => {
      const length = /^\d+(\.\d+)?[km]$/.test(word) || /^\d{4,7}$/.test(word.replace(/,/g, ""))
        ? kvState.tokensOf(word)
        : undefined;
      if (length && state.context === undefined) {
        state.context = length;
        understood.push(`${tokens(length)} tokens`);
        return false;
      }
      const format = FORMATS[word.replace(/[-_]/g, "")];
      if (format && state[format[0]] === undefined) {
        state[format[0]] = format[1];
        understood.push(`${word.toUpperCase()} weights`);
        return false;
      }
      return true;
    });
  }

  /* The model that has most of the words; among equals the one that has them whole ("glm-5" is no GLM-5.2), then the
     commonly used, the fewest words, the newest, the shortest name. */
  function modelIn(models, words, state, understood, missed) {
    const asked = words.filter((word) => !FILLERS.has(word));
    let best = null;
    for (const model of models) {
      const hits = asked.filter((word, n) =>
        hit(model, plainName(word)) ||
        (n > 0 && /^\d/.test(word) && model.words.includes(plainName(asked[n - 1] + word)))
      );
      if (!hits.length || !hits.some((word) => /[a-z]{2}/.test(word))) continue;
      const length = model.name.split(/[\s-]/).length;
      const whole = hits.filter((word) => isWhole(model, plainName(word))).length;
      const rank = [
        hits.length,
        whole,
        model.common ? 1 : 0,
        -length,
        model.release || "",
        -model.name.length,
      ];
      if (!best || above(rank, best.rank)) best = { model, hits, rank };
    }
    if (best) {
      state.model = best.model.id;
      understood.unshift(best.model.name);
    }
    const wrong = asked.filter((word) => !best || !best.hits.includes(word));
    missed.push(...wrong);
    // "mistral large 3": a number right after the words of a name is another release of it.
    const at = asked.findIndex((word, n) =>
      n > 0 && wrong.includes(word) && RELEASE.test(word) && best?.hits.includes(asked[n - 1])
    );
    return at < 0 ? null : asked.slice(asked.findIndex((word) => best.hits.includes(word)), at + 1).join(" ");
  }

  /* "qwen 72b awq" is a checkpoint of that name, where there is one: its layers may be padded, so that it can be split. */
  function checkpointOf(models, words, state, understood) {
    const quantizer = words.find((word) => word === "awq" || word === "gptq");
    const base = models.find((one) => one.id === state.model);
    if (!quantizer || !base || state.weights !== "int4") return;
    const own = (id) => plainName(id.split("--").pop());
    const ending = new RegExp(`^(meta)?${quantizer}(int4|4bit)?$`);
    const found = models.find((one) =>
      own(one.id).includes(own(base.id)) && ending.test(own(one.id).replace(own(base.id), ""))
    );
    if (!found) return;
    state.model = found.id;
    delete state.weights;
    understood[0] = found.name;
    understood.splice(understood.indexOf(`${quantizer.toUpperCase()} weights`), 1);
  }

  const hit = (model, word) =>
    word &&
    (model.words.includes(word) || (word.length > 2 && model.words.some((one) => one.startsWith(word))) ||
      (word.length > 1 && model.words.some((one) => one.startsWith(`${word}.`))) ||
      (word.length > 3 && model.plain.includes(word)));

  /* Whether a word is one of a name, or some that follow each other. */
  const isWhole = ({ words, names }, word) =>
    names.includes(word) || words.some((one, n) => one === word || one + words[n + 1] === word);

  const above = (a, b) => {
    const n = a.findIndex((each, place) => each !== b[place]);
    return a[n] > b[n];
  };

  /* Names as the search wants them: every alias on its own, and the words of a model's name. */
  function prepared(file) {
    const alone = ([id, name, maker, release, common, aliases]) => ({
      id,
      name,
      maker,
      release,
      common: Boolean(common),
      names: [id, name, ...aliases].map(plainName),
      words: [name, id, ...aliases].flatMap((text) => text.toLowerCase().split(/[\s/_-]+/)).map(plainName),
      plain: plainName(name + id),
    });
    return { models: file.models.map(alone), gpus: file.gpus.map(alone) };
  }

  /* The sentence that says what a text was taken for. */
  function said({ understood, missed, unlisted }) {
    const strange = unlisted ? missed.filter((word) => !unlisted.endsWith(` ${word}`)) : missed;
    return [
      unlisted && `“${unlisted}” is not in this catalog; ${understood[0]} is the nearest.`,
      understood.length ? `Understood: ${understood.join(" · ")}.` : "Nothing was understood.",
      strange.length && `Not understood (${count(strange.length)}): ${strange.join(", ")}.`,
    ].filter(Boolean).join(" ");
  }

  kvreport.asked = { understand, prepared, said, AT_HOME };
})();
