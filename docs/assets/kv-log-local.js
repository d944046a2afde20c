/* Start-up lines of llama.cpp and Ollama, read in the browser: kvreport.startup_log.llama_cpp and the part of
   kvreport.startup_log.local that needs no model. A test holds it equal to Python's. */
(function (root) {
  "use strict";

  const GIB = 2 ** 30, SIXTEEN_BIT = ["f16", "bf16"], QUANTIZED_SHARE = 34 / 64;
  const WORDS = {
    model: "weights",
    KV: "cache",
    RS: "recurrent states",
    compute: "working memory",
    output: "output",
  };
  const size = (bytes) => `${(bytes / GIB).toFixed(2)} GiB`;

  const looksLike = (table, text) => table.marks.some((mark) => text.includes(mark));

  function expressions(table) {
    const made = {};
    for (const [name, text] of Object.entries(table.patterns)) {
      made[name] = new RegExp(text, name === "hosts" ? "si" : name === "expected" ? "sg" : "s");
    }
    return made;
  }

  function read(table, text) {
    const find = expressions(table);
    const mib = (number) => Math.round(Number(number) * table.mib);
    const start = {
      buffers: {},
      cache: 0,
      states: 0,
      cells: [],
      types: null,
      streams: null,
      context: null,
      slots: null,
      offloaded: null,
      free: {},
      ranOut: false,
      failures: [],
      ollama: false,
      placed: {},
      complete: false,
      unplaced: 0,
    };
    const estimated = {};
    for (const line of lastStart(table, text.split(/\r\n|\n|\r/), find)) {
      readLine(start, line, find, mib, table);
      for (const one of line.matchAll(find.expected)) {
        estimated[one.groups.part] = Math.trunc(Number(one.groups.size) * table.units[one.groups.unit]);
      }
    }
    if (!Object.keys(start.buffers).length && Object.keys(start.placed).length) {
      start.buffers = start.placed;
    }
    const ofKind = (kind) => Object.values(start.buffers).reduce((sum, kinds) => sum + (kinds[kind] || 0), 0);
    start.cache ||= ofKind("KV");
    start.states ||= ofKind("RS");
    if (!Object.keys(start.buffers).length && "full" in estimated) expect(table, start, estimated);
    return start;
  }

  /* Where an older Ollama expected its bytes, of a log that has no buffer of llama.cpp's. */
  function expect(table, start, part) {
    const full = part.full, cache = part.kv || 0;
    const weights = (part["weights.total"] || 0) + (part["projector.weights"] || 0);
    const [placed, layers] = start.offloaded || [1, 1];
    const share = layers ? placed / layers : 0;
    if (part.available) start.free[table.expected[0]] = part.available;
    start.cache = cache;
    if (!("weights.total" in part && "kv" in part)) {
      /* The need of all layers, whose parts are not told: what of it is placed is "partial". */
      const onDevice = placed ? part.partial ?? (placed === layers ? full : 0) : 0;
      if (onDevice || !placed) {
        [onDevice, full - onDevice].forEach((bytes, at) => {
          if (bytes > 0) start.buffers[table.expected[at]] = { all: bytes };
        });
      } else {
        start.unplaced = full;
      }
      return;
    }
    const devices = {
      model: weights * share,
      KV: cache * share,
      compute: placed ? full - weights - cache : 0,
    };
    const host = {
      model: weights - devices.model,
      KV: cache - devices.KV,
      compute: placed ? 0 : full - weights - cache,
    };
    [devices, host].forEach((kinds, at) => {
      const known = Object.entries(kinds).filter(([, bytes]) => bytes >= 1)
        .map(([kind, bytes]) => [kind, Math.trunc(bytes)]);
      if (known.length) start.buffers[table.expected[at]] = Object.fromEntries(known);
    });
  }

  /* The lines of the last start that says where bytes are, or why it ends: those of two are no sum. */
  function lastStart(table, lines, find) {
    const begun = [{ lines: [], told: false }];
    for (const line of lines) {
      const needs = line.includes(table.need);
      if (find.build.test(line) || needs) begun.push({ lines: [], told: false });
      const last = begun[begun.length - 1];
      last.lines.push(line);
      last.told ||= needs || table.telling.some((name) => find[name].test(line));
    }
    return (begun.findLast((one) => one.told) || { lines }).lines;
  }

  function readLine(start, line, find, mib, table) {
    let found = find.buffer.exec(line) || find.weights.exec(line);
    if (found) {
      const kinds = start.buffers[found.groups.device] ??= {};
      const kind = found.groups.kind || "model";
      kinds[kind] = (kinds[kind] || 0) + mib(found.groups.mib);
    } else if ((found = find.states.exec(line) || find.compressors.exec(line.trimEnd()))) {
      start.states += mib(found.groups.mib);
    } else if ((found = find.cache_size.exec(line))) {
      start.cells.push(Number(found.groups.cells));
    } else if ((found = find.cells.exec(line))) {
      start.cache += mib(found.groups.mib);
      if (found.groups.cells) start.cells.push(Number(found.groups.cells));
      if (found.groups.key && found.groups.value) start.types = [found.groups.key, found.groups.value];
      if (found.groups.streams) start.streams = Number(found.groups.streams);
    } else if ((found = find.offloaded.exec(line))) {
      start.offloaded = [Number(found[1]), Number(found[2])];
    } else if ((found = find.layers.exec(line))) {
      start.offloaded = [Number(found.groups.placed), Number(found.groups.all)];
    } else if ((found = find.placed.exec(line))) {
      if (start.complete) [start.placed, start.complete] = [{}, false];
      const kinds = start.placed[found.groups.device] ??= {};
      const bytes = Math.trunc(Number(found.groups.size) * table.units[found.groups.unit]);
      kinds[table.placedKinds[found.groups.what]] = bytes;
    } else if (line.includes(table.placedEnds)) {
      start.complete = true;
    } else if ((found = find.free.exec(line))) {
      start.free[found[1]] = Number(found[2]) * table.mib;
    }
    for (const name of table.numbers) {
      found = find[name].exec(line);
      if (found) start[name] = Number(found[1]);
    }
    if (line.includes(table.again)) [start.ranOut, start.failures] = [false, []];
    else if (find.out.test(line) || find.ends.test(line)) {
      start.ranOut = start.ranOut || find.out.test(line);
      start.failures.push(line);
    }
    start.ollama = start.ollama || find.from_ollama.test(line);
  }

  const total = (kinds) => Object.values(kinds).reduce((sum, one) => sum + one, 0);

  function taken(table, start, onHost) {
    const hosts = expressions(table).hosts;
    return Object.entries(start.buffers)
      .filter(([name]) => hosts.test(name) === onHost)
      .reduce((sum, [, kinds]) => sum + total(kinds), 0);
  }

  const number = (value) => value.toLocaleString("en-US");

  /* The kinds of buffers that no line states, of a start whose lines divide its bytes into kinds. */
  function missing(table, start) {
    const stated = new Set(Object.values(start.buffers).flatMap((kinds) => Object.keys(kinds)));
    if (start.unplaced || table.expected.some((name) => name in start.buffers)) return [];
    return table.kinds.filter((kind) => !stated.has(kind) && !(kind === "KV" && stated.has("RS")));
  }

  /* What the buffers take; empty where no line states one. */
  function takenWords(table, start) {
    const hosts = expressions(table).hosts, names = Object.keys(start.buffers);
    const complete = names.length && !missing(table, start).length;
    const divided = [["on devices", false], ["in host memory", true]]
      .filter(([, host]) => complete || names.some((name) => hosts.test(name) === host))
      .map(([where, host]) => `${size(taken(table, start, host))} ${where}`).join(", ");
    const part = `an unknown part of the ${size(start.unplaced)} that all layers need on devices`;
    const told = start.unplaced ? part : divided;
    const [placed, whole] = start.offloaded || [0, 0];
    return told && placed < whole ? `${told}, with ${placed} of ${whole} layers on the GPU` : told;
  }

  /* What the log states of the cache and of the states, where no line has their buffers. */
  function parts(table, start) {
    const told = [];
    if (start.cache && missing(table, start).includes("KV")) {
      const [cells] = start.cells, streams = start.streams || 1;
      const each = Math.floor(start.cache / (cells * streams) + 0.5);
      const whose = streams > 1 ? ` of each of ${streams} requests` : "";
      const divided = start.cells.length === 1 && cells
        ? `: ${number(cells)} cells of ${number(each)} bytes, one for each token${whose}`
        : "";
      told.push(`The cache takes ${size(start.cache)}${divided}.`);
    }
    if (start.states && !Object.values(start.buffers).some((kinds) => "RS" in kinds)) {
      told.push(`The recurrent states take ${size(start.states)}.`);
    }
    return told;
  }

  function headline(table, start, end = null) {
    const all = takenWords(table, start), apart = parts(table, start);
    if (end || start.ranOut) {
      const ended = end ? end.sentence : "The server does not start: memory ran out.";
      return [ended, ...(all ? [`Until then, it took ${all}.`] : []), ...apart].join(" ");
    }
    const told = all ? [`The start takes ${all}.`] : [];
    if (start.context !== null) {
      const slots = start.slots > 1 ? `, shared by ${start.slots} requests` : "";
      told[0] = `It starts with ${number(start.context)} tokens${slots}${all ? `: ${all}` : ""}.`;
    }
    const without = missing(table, start).map((kind) => WORDS[kind]);
    if (without.length) {
      apart.push(
        Object.keys(start.buffers).length
          ? `No line of the log states the buffer of: ${without.join(", ")}. The sum excludes these parts.`
          : "No line of the log states a buffer, so the memory that the start takes is not known.",
      );
    }
    return [...told, ...apart].join(" ");
  }

  /* Remedies with what they save; those of an end that no line has numbers for come last. */
  const CALCULATED = ["smaller_cache", "shorter", "fewer_requests", "fewer_layers"];

  function changes(table, start, end = null) {
    const said = [], options = table.options[start.ollama ? "ollama" : "llama_cpp"];
    const told = (name, value) => options[name].replaceAll("{}", value);
    const kept = start.offloaded !== null && start.offloaded[0] < start.offloaded[1];
    if (start.ranOut || kept) {
      if (start.cache && SIXTEEN_BIT.includes((start.types || SIXTEEN_BIT)[0])) {
        const saved = start.cache * (1 - QUANTIZED_SHARE);
        said.push(`store the cache as q8_0 (${told("cache", "q8_0")}): ${size(saved)} less`);
      }
      if (start.context > 1) {
        const less = start.cache ? `: ${size(start.cache / 2)} less` : "";
        said.push(`halve the context (${told("context", Math.floor(start.context / 2))})${less}`);
      }
      if (start.slots > 1) {
        said.push(`serve one request at a time (${options.slots}), which leaves it the whole context`);
      }
    }
    if (start.ranOut) {
      said.push(
        start.offloaded
          ? `leave layers in host memory (${told("layers", Math.floor((start.offloaded[0] * 3) / 4))})`
          : `leave layers in host memory (${options.fewer_layers}), or use smaller weights`,
      );
    } else if (kept) {
      const more = layersThatFit(table, start);
      if (more) {
        said.push(
          `put ${more.toLocaleString("en-US")} more layers on the device (${
            told("layers", start.offloaded[0] + more)
          })`,
        );
      }
    }
    const further = end ? end.remedies.filter(([name]) => !CALCULATED.includes(name)) : [];
    return [...said, ...further.map(([, words]) => words)];
  }

  function layersThatFit(table, start) {
    const [placed, whole] = start.offloaded;
    const free = total(start.free);
    const weights = Object.keys(start.free)
      .reduce((sum, name) => sum + ((start.buffers[name] || {}).model || 0), 0);
    if (!(placed && free && weights)) return 0;
    const spare = free - taken(table, start, false) - GIB;
    return Math.max(0, Math.min(Math.floor(spare / (weights / placed)), whole - placed));
  }

  /* Rows for a table: device, then bytes by kind, then what was free. */
  function rows(start) {
    return Object.entries(start.buffers).map(([device, kinds]) => [
      device,
      ...Object.keys(WORDS).map((kind) => (kinds[kind] ? size(kinds[kind]) : "")),
      size(total(kinds)),
      start.free[device] ? size(start.free[device]) : "",
    ]);
  }

  const heads = [
    "Device",
    "Weights",
    "Cache",
    "Recurrent states",
    "Working memory",
    "Output",
    "Total",
    "Free at start",
  ];

  root.kvLogLocal = { looksLike, read, headline, changes, rows, heads };
})(globalThis);
