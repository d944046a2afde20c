/* Hit-rate curves of a trace, in the browser: the readers and the one pass of kvreport/traffic, again.
   tests/browser holds it equal to Python's, to the token. Sums stay below 2^53, so a double holds them. */
(function (root) {
  "use strict";

  const BLOCK_SIZES = [512, 16, 32, 64, 128, 256, 1024];
  const PROBE = 200;
  const MAX_DEPTH = 4, MAX_FIELDS = 1000;
  /* Names of fields, units and limits: kvreport/words.json and kvreport/budgets.py, for both readers. */
  const shared = () => root.kvKernel.words.trace;
  const MOST_TOKENS = 2 ** 30;
  const whole = (value) => Number.isInteger(value) && value >= 0 && value <= MOST_TOKENS;

  /* Python and JavaScript have different blanks beyond ASCII. */
  const trimmed = (text) => text.replace(/^[\t-\r ]+|[\t-\r ]+$/g, "");

  /** @returns {never} */
  function fail(text) {
    throw new Error(text);
  }

  /* --- reading ------------------------------------------------------------------------------------- */

  /* --- fields by their names, and moments as people write them: kvreport/traffic/fields.py, again ----------- */

  const plain = (name) => name.toLowerCase().replace(/[^a-z0-9]/g, "");

  function ranked(present, field) {
    const units = field === "time" ? ["", ...Object.keys(shared().units)] : [""];
    const found = shared().names[field].flatMap((name) => units.map((unit) => name + unit));
    return [...new Set(found.filter((name) => present.has(name)))];
  }

  function perSecond(name) {
    const { names, units } = shared();
    if (names.time.includes(name)) return 1;
    const unit = Object.keys(units).find((one) => names.time.some((known) => known + one === name));
    return unit === undefined ? 1 : units[unit];
  }

  function number(text) {
    const stripped = trimmed(text);
    if (
      stripped.length > 40 || !/^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?$/.test(stripped)
    ) {
      return null;
    }
    const value = Number(stripped);
    return Number.isFinite(value) ? value : null;
  }

  function date(text) {
    const match =
      /^([0-9]{4})[-/]([0-9]{2})[-/]([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,12}))?)? ?(?:Z|z|UTC|GMT|([+-])([0-9]{2}):?([0-9]{2})?)?$/
        .exec(text);
    if (!match || text.length > 60) return null;
    const [year, month, day, hour, minute, second] = match.slice(1, 7).map((part) => Number(part || 0));
    const at = new Date(0);
    at.setUTCFullYear(year, month - 1, day);
    if (
      !year || at.getUTCMonth() !== month - 1 || at.getUTCDate() !== day || hour > 23 || minute > 59 ||
      second > 59
    ) return null;
    let seconds = at.getTime() / 1000 + hour * 3600 + minute * 60 + second;
    if (match[8]) {
      seconds -= (match[8] === "+" ? 1 : -1) * (Number(match[9]) * 3600 + Number(match[10] || 0) * 60);
    }
    return seconds + Number(`0.${match[7] || 0}`);
  }

  /* Seconds, since 1970 where it says so; null if it is no time. */
  function moment(value, name = "") {
    let at = value;
    if (typeof value === "string") {
      at = number(value);
      if (at === null) return date(trimmed(value));
    }
    if (typeof at !== "number" || !Number.isFinite(at)) return null;
    const stated = perSecond(name);
    if (stated !== 1) return at / stated;
    const epoch = shared().epochs.find(([least]) => Math.abs(at) >= least);
    return epoch ? at / epoch[1] : at;
  }

  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

  /* A record's plain values by plain names, of objects inside it too; the outermost of a name counts. */
  function flat(record) {
    const found = new Map();
    let level = [record];
    for (let depth = 0; depth < MAX_DEPTH; depth++) {
      const below = [];
      for (const part of level) {
        for (const [name, value] of Object.entries(part)) {
          if (isObject(value)) below.push(value);
          else if ((typeof value === "string" || typeof value === "number") && !found.has(plain(name))) {
            found.set(plain(name), value);
          }
        }
        if (found.size > MAX_FIELDS || below.length > MAX_FIELDS) return found;
      }
      level = below;
    }
    return found;
  }

  function timesOf(fields) {
    const found = new Map();
    for (const name of ranked(fields, "time")) {
      const at = moment(fields.get(name), name);
      if (at !== null) found.set(name, at);
    }
    return found;
  }

  /* What a prompt has besides the tokens under one name: input_tokens leaves out what a cache held and what was written to it. */
  const beside = (name) => name === "inputtokens" ? shared().names.cached : [];

  function countOf(fields, field) {
    const name = ranked(fields, field).find((one) => Number.isInteger(fields.get(one)));
    const more = field === "prompt" ? beside(name).map((one) => fields.get(one)) : [];
    return more.filter(Number.isInteger).reduce((sum, one) => sum + one, fields.get(name));
  }

  function lineTime(line) {
    const match = /[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,12})?/.exec(line);
    const at = match && date(match[0]);
    if (at === null) return new Map();
    const latency = /["']?e2e_latency["']?[ \t]*[:=][ \t]*([0-9]{1,9}(?:\.[0-9]{1,12})?)/.exec(line);
    return new Map([["", at - (latency ? Number(latency[1]) : 0)]]);
  }

  function lineTimes(line) {
    const pairs = new Map();
    for (
      const match of line.matchAll(
        /\b([A-Za-z_][A-Za-z0-9_]{0,40})["']?[ \t]*[:=][ \t]*["']?([0-9]{9,20}(?:\.[0-9]{1,12})?(?![0-9])|[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[T ][0-9]{2}:[0-9]{2}[0-9:.,]{0,16}(?: ?(?:Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2}))?)/g,
      )
    ) {
      if (!pairs.has(plain(match[1]))) pairs.set(plain(match[1]), match[2]);
    }
    return new Map([...timesOf(pairs), ...lineTime(line)]);
  }

  /* The field that a trace states its arrivals in, chosen at the first request and read from every one. */
  function clock(first, { fromFirst = false, milliseconds = false } = {}) {
    const listed = ranked(first, "time");
    const name = listed.find((one) => moment(first.get(one), one) !== null) ?? listed[0] ?? null;
    const label = fromFirst ? "time" : name;
    const inMilliseconds = milliseconds && name !== null && typeof first.get(name) === "number" &&
      Math.abs(first.get(name)) < 1e9;
    const read = (value) => inMilliseconds && typeof value === "number" ? value / 1000 : moment(value, name);
    let start = 0;
    if (name !== null) {
      const at = read(first.get(name));
      if (at !== null && (fromFirst || Math.abs(at) >= shared().since_1970)) start = at;
    }
    return {
      name,
      at(fields, where) {
        if (name === null) return 0;
        const at = fields.has(name) ? read(fields.get(name)) : null;
        if (at === null) {
          fail(
            fields.has(name)
              ? `${where}: ${label} ${fields.get(name)} is not a time.`
              : `${where}: this request has no ${label}, but the first one has.`,
          );
        }
        if (start && at < start) {
          fail(`${where}: its time is before the time of the first row; sort the rows by time.`);
        }
        return at - start;
      },
    };
  }

  /* A trace in columns; blocks become nodes of a prefix tree: equal ids after equal ids are equal text. */
  function build(requests, blockTokens, name, arrivals = "recorded") {
    if (!requests.length) fail(`${name}: no request was found.`);
    const unordered = requests.some((one, n) => n && one.time < requests[n - 1].time);
    const nodes = [], tree = new Map(), sessions = new Map();
    let unnumbered = 0, held = 0;
    requests.forEach((one, n) => {
      if (one.session !== undefined && !sessions.has(one.session)) sessions.set(one.session, sessions.size);
      if (!Number.isFinite(one.time) || one.time < 0) {
        fail(`Request ${n + 1}: time ${one.time} is not a number of seconds from 0.`);
      }
      if (!whole(one.prompt) || !one.prompt) {
        fail(`Request ${n + 1}: prompt of ${one.prompt} tokens; allowed: whole numbers from 1.`);
      }
      if (!whole(one.output)) {
        fail(`Request ${n + 1}: output of ${one.output} tokens; allowed: whole numbers from 0.`);
      }
      const ids = one.blocks || [];
      const low = Math.floor(one.prompt / blockTokens), high = Math.ceil(one.prompt / blockTokens);
      if (ids.length && (ids.length < low || ids.length > high)) {
        fail(
          `Request ${
            n + 1
          }: ${ids.length} block ids for ${one.prompt} tokens; allowed: ${low} to ${high} blocks of ${blockTokens}.`,
        );
      }
      if (!ids.length) unnumbered += 1;
      held += ids.length;
      if (held > shared().paths) fail(`${name}: found more than ${shared().paths} block ids.`);
      let parent = -1;
      nodes.push(ids.map((id) => {
        const key = `${parent}/${typeof id === "string" ? `"${id}` : id}`;
        let node = tree.get(key);
        if (node === undefined) tree.set(key, node = tree.size);
        parent = node;
        return node;
      }));
    });
    const order = requests.map((_, n) => n);
    if (unordered) order.sort((a, b) => requests[a].time - requests[b].time || a - b);
    return {
      name,
      arrivals,
      blockTokens: unnumbered === requests.length ? 0 : blockTokens,
      distinct: tree.size,
      reordered: order.filter((n, at) => n !== at).length,
      time: order.map((n) => requests[n].time),
      prompt: order.map((n) => requests[n].prompt),
      output: order.map((n) => requests[n].output),
      session: order.map((n) => sessions.get(requests[n].session) ?? -1),
      paths: order.map((n) => nodes[n]),
    };
  }

  function compact(lines, name) {
    const head = /^kvreport-trace 1 block=(\d{1,7}) time=ms\b/.exec(lines[0]);
    if (!head) fail(`${name}: the first line is not the header of a trace.`);
    let time = 0, known = 0;
    const requests = lines.slice(1).filter((line) => trimmed(line)).map((line, n) => {
      const row = /^(\d{1,12}),(\d{1,10}),(\d{1,10})(?:,(\d{1,9}))?(?:;([\d+ -]*))?$/.exec(trimmed(line));
      if (!row) fail(`Line ${n + 2}: ${line.slice(0, 60)} is not a request.`);
      time += Number(row[1]);
      const blocks = [];
      for (const word of (row[5] || "").split(" ").filter(Boolean)) {
        let low, high;
        if (word.startsWith("+")) {
          low = known;
          known += Number(word.slice(1));
          high = known - 1;
        } else [low, high = low] = word.split("-").map(Number);
        if (!(low >= 0 && low <= high && high < known)) {
          fail(`Line ${n + 2}: ${word} is not a range of known blocks.`);
        }
        for (let node = low; node <= high; node++) blocks.push(node);
      }
      return { time: time / 1000, prompt: Number(row[2]), output: Number(row[3]), blocks, session: row[4] };
    });
    return build(requests, Number(head[1]), name);
  }

  const rangesOf = (row) => Array.isArray(row.hash_ids) ? [] : row.hash_ranges || [];

  function countIds(row, where) {
    if (Array.isArray(row.hash_ids)) return row.hash_ids.length;
    return rangesOf(row).reduce((sum, range) => {
      const [low, high] = range;
      if (!Number.isInteger(low) || !Number.isInteger(high) || low > high + 1) {
        fail(`${where}: hash_ranges are pairs of whole numbers.`);
      }
      return sum + high - low + 1;
    }, 0);
  }

  function idsOf(row, session, where) {
    if (countIds(row, where) > shared().blocks) fail(`${where}: more than ${shared().blocks} block ids.`);
    if (Array.isArray(row.hash_ids)) return row.hash_ids;
    const ids = [];
    for (const [low, high] of rangesOf(row)) {
      for (let id = low; id <= high; id++) ids.push(session === undefined ? id : `${session}/${id}`);
    }
    return ids;
  }

  const objects = (lines) =>
    lines.filter((line) => trimmed(line)).map((line, n) => {
      try {
        const row = JSON.parse(line);
        if (isObject(row)) return row;
      } catch { /* said below */ }
      return fail(`Line ${n + 1} is not a JSON object.`);
    });

  function blockTokensOf(rows, name, given) {
    const probe = rows.slice(0, PROBE);
    const stating = probe.find((row) => row.block_size !== undefined || row.block !== undefined);
    const tokens = stating ? stating.block_size ?? stating.block : given;
    if (tokens !== undefined && tokens !== null) {
      return Number.isInteger(tokens) && tokens > 0
        ? tokens
        : fail(`${name}: a block size is a whole number from 1.`);
    }
    const pairs = probe.map((row, n) => [row.input_length, countIds(row, `Request ${n + 1}`)]).filter((
      [length, ids],
    ) => whole(length) && ids);
    const fits = BLOCK_SIZES.map((size) =>
      pairs.filter(([length, ids]) => Math.ceil(length / size) === ids).length
    );
    const best = fits.indexOf(Math.max(...fits));
    if (2 * fits[best] < Math.max(pairs.length, 1)) {
      fail(`${name}: no block size agrees with the lengths and the numbers of ids.`);
    }
    return BLOCK_SIZES[best];
  }

  /* JSON objects with lengths and block ids: Mooncake, Bailian, ids as ranges, or without any ids. */
  function hashed(rows, name, given) {
    const first = rows[0];
    const shares = first.hash_ids !== undefined || first.hash_ranges !== undefined;
    // Mooncake's times are whole milliseconds; those of the Bailian traces (chat_id) and of "t" are seconds.
    const parts = rows.slice(0, PROBE).some(({ timestamp: at }) => typeof at === "number" && at % 1);
    const milliseconds = first.timestamp !== undefined && (first.chat_id ?? null) === null &&
      first.t === undefined && (shares || !parts);
    const times = clock(flat(first), { milliseconds });
    const tokens = shares ? blockTokensOf(rows, name, given) : 1;
    const roots = new Map(); // of conversations, by the id of each of their turns
    return build(
      rows.map((row, n) => {
        const fields = flat(row), { chat_id: chat = null, parent_chat_id: parent = -1 } = row;
        let session = row.session ?? fields.get(ranked(fields, "session")[0]);
        if (chat !== null) {
          if (!roots.has(chat)) roots.set(chat, roots.get(parent) ?? String(chat));
          session = roots.get(chat);
        }
        return {
          session: session === undefined ? session : String(session),
          time: times.at(fields, `Request ${n + 1}`),
          prompt: row.input_length ?? row.in,
          output: row.output_length ?? row.out ?? 0,
          blocks: shares ? idsOf(row, session, `Request ${n + 1}`) : [],
        };
      }),
      tokens,
      name,
      times.name === null ? "at_once" : "recorded",
    );
  }

  function sessions(documents, name) {
    const requests = [];
    const tokens = documents[0].block_size ?? 64;
    documents.forEach((one, n) => {
      const scope = one.hash_id_scope === "global" ? "" : `${one.id ?? n}/`;
      const add = (turns) =>
        turns.forEach((turn) => {
          if (Array.isArray(turn.requests)) {
            add(turn.requests);
            return;
          }
          if (typeof turn.in !== "number" || typeof (turn.t ?? 0) !== "number") {
            fail(`Request ${requests.length + 1}: a turn states "in" and "t" as numbers.`);
          }
          // An aborted call has no prompt: nothing was read.
          if (turn.in) {
            requests.push({
              time: turn.t ?? 0,
              prompt: turn.in,
              output: turn.out ?? 0,
              blocks: idsOf(turn, undefined, `Request ${requests.length + 1}`).map((id) => `${scope}${id}`),
              session: one.id ?? n,
            });
          }
        });
      add(one.requests);
    });
    return build(requests, tokens, name, documents.length > 1 ? "sessions_at_once" : "recorded");
  }

  /* What separates the columns: the sign of these that the first line has most of, outside quotes. */
  function separatorOf(head) {
    const bare = head.replace(/"[^"]*"/g, "");
    const [comma, semicolon, tab] = [",", ";", "\t"].map((sign) => bare.split(sign).length);
    return comma >= semicolon && comma >= tab ? "," : semicolon >= tab ? ";" : "\t";
  }

  /* Rows with their numbers; a cell in quotes may hold separators, ends of lines, and a quote written twice. */
  function rowsOf(lines, separator) {
    const rows = [];
    let open = "";
    for (const line of lines) {
      open += line.replace(/\r$/, "");
      // A quote opens a cell only where the cell begins, so a row is cut as soon as it is whole.
      const cells = cellsOf(open, separator);
      if (cells === null) open += "\n";
      else {
        rows.push(/** @type {[number, string[]]} */ ([rows.length + 1, cells]));
        open = "";
      }
    }
    return open ? fail("The last quoted cell has no closing quote.") : rows;
  }

  /* The cells of a row; null if it ends within quotes. */
  function cellsOf(row, separator) {
    if (!row.includes('"')) return row.split(separator);
    const cells = [];
    let at = 0;
    for (;;) {
      if (row[at] !== '"') {
        const next = row.indexOf(separator, at);
        cells.push(next < 0 ? row.slice(at) : row.slice(at, next));
        if (next < 0) return cells;
        at = next + 1;
        continue;
      }
      let end = at + 1, text = "";
      for (;;) {
        const quote = row.indexOf('"', end);
        if (quote < 0) return null;
        text += row.slice(end, quote);
        end = quote + 1;
        if (row[end] !== '"') break;
        text += '"';
        end += 1;
      }
      cells.push(text);
      if (end === row.length) return cells;
      if (row[end] !== separator) {
        fail(`A quoted cell has text after the closing quote: ${row.slice(at, at + 40)}.`);
      }
      at = end + 1;
    }
  }

  function table(lines, name) {
    const separator = separatorOf(lines.find((line) => trimmed(line)));
    const rows = rowsOf(lines, separator).filter(([, cells]) => cells.some((cell) => trimmed(cell)));
    if (!rows.length) fail(`${name}: no request was found.`);
    const head = rows[0][1];
    /** @type {any} */
    let at;
    let times = new Map();
    if (head.every((cell) => /^[\d.]*$/.test(cell.replace(/[\t-\r ,+-]/g, "")))) {
      at = [{ prompt: 0 }, { prompt: 0, output: 1 }, { time: 0, prompt: 1, output: 2 }][head.length - 1] ||
        fail(`Line 1: ${head.length} columns without a header; allowed: 1 to 3.`);
      if (at.time !== undefined) times.set("time", at.time);
    } else {
      const places = new Map();
      head.forEach((cell, n) => {
        if (!places.has(plain(cell))) places.set(plain(cell), n);
      });
      const place = (field) => places.get(ranked(places, field)[0]);
      const cached = beside(ranked(places, "prompt")[0]).filter((one) => places.has(one));
      at = {
        prompt: place("prompt"),
        output: place("output"),
        session: place("session"),
        cached: cached.map((one) => places.get(one)),
      };
      times = new Map(ranked(places, "time").map((known) => [known, places.get(known)]));
      if (at.prompt === undefined) {
        fail(
          `${name}: no column of prompt lengths (ContextTokens, num_prefill_tokens, prompt_tokens or input_length).`,
        );
      }
      rows.shift();
    }
    // Between semicolons, seconds may have a decimal comma.
    const seconds = (cell) => separator === ";" ? cell.replace(/^([ +-]*[0-9]+),([0-9]+ *)$/, "$1.$2") : cell;
    const timesIn = (cells) =>
      new Map([...times].filter(([, n]) => n < cells.length).map(([known, n]) => [known, seconds(cells[n])]));
    if (!rows.length) fail(`${name}: no request was found.`);
    const when = clock(timesIn(rows[0][1]), { fromFirst: true });
    return build(
      rows.map(([line, cells]) => ({
        time: when.at(timesIn(cells), `Line ${line}`),
        prompt: [at.prompt, ...(at.cached ?? [])].reduce(
          (sum, one) => sum + (number((one === at.prompt ? cells[one] : cells[one] || "0") ?? "") ?? NaN),
          0,
        ),
        output: at.output === undefined ? 0 : number(cells[at.output] ?? "") ?? NaN,
        session: trimmed(cells[at.session] ?? "") || undefined,
      })),
      1,
      name,
      when.name === null ? "at_once" : "recorded",
    );
  }

  function jsonEntry(record, line) {
    if (!isObject(record)) return null;
    const fields = flat(record), prompt = countOf(fields, "prompt"), output = countOf(fields, "output");
    if (prompt === undefined || output === undefined) return null;
    const times = timesOf(fields);
    return { prompt, output, times: times.size ? times : lineTime(line) };
  }

  function textEntry(line) {
    const prompt =
      /(?<![A-Za-z_])["']?(?:prompt_tokens|input_tokens)["']?[\t-\r ]*[:=][\t-\r ]*(-?[0-9]{1,18})(?![0-9])/
        .exec(line);
    const output =
      /["']?(?:completion_tokens|output_tokens)["']?[\t-\r ]*[:=][\t-\r ]*(-?[0-9]{1,18})(?![0-9])/.exec(
        line,
      );
    return prompt && output
      ? { prompt: Number(prompt[1]), output: Number(output[1]), times: lineTimes(line) }
      : null;
  }

  const parsed = (line) => {
    if (!trimmed(line).startsWith("{")) return null;
    try {
      return JSON.parse(line);
    } catch {
      return null;
    }
  };

  /* Lines, and what they are as JSON: those that state both counts, by the time that the first of them states. */
  function logged(entries, name) {
    const found = [];
    let chosen = null;
    for (const [line, record] of entries) {
      const entry = jsonEntry(record, line) || textEntry(line);
      if (!entry) continue;
      if (!found.length) chosen = [...entry.times.keys()][0] ?? null;
      found.push({ ...entry, time: chosen === null ? 0 : entry.times.get(chosen) ?? NaN });
    }
    if (!found.length) {
      const first = entries.map(([, record]) => record).find(isObject);
      const listed = (field) => shared().names[field].join(", ");
      fail(
        `${name}: no lengths were found${
          first ? ` among ${Object.keys(first).slice(0, 12).join(", ")}` : ", so this is not a trace"
        }. Names of prompt lengths: ${listed("prompt")}. Of answers: ${
          listed("output")
        }. Small letters, capitals and underscores are the same.`,
      );
    }
    const missing = found.filter((one) => Number.isNaN(one.time)).length;
    if (missing) {
      fail(
        `${name}: ${missing} of ${found.length} requests do not state the time ${
          chosen || "of the line"
        } that the first states.`,
      );
    }
    if (chosen !== null) {
      const first = found.reduce((least, one) => Math.min(least, one.time), Infinity);
      found.sort((a, b) => a.time - b.time);
      for (const one of found) one.time -= first;
    }
    return build(found, 1, name, chosen === null ? "at_once" : "recorded");
  }

  const mentionsUsage = (line) =>
    !/^[\w "]+([,;\t][\w "]+)+[\t-\r ]*$/.test(line) && line.includes("prompt_tokens") &&
    /completion_tokens|output_tokens/.test(line);

  const isHashed = (row) =>
    row.hash_ids !== undefined || row.hash_ranges !== undefined || row.input_length !== undefined;

  function array(text, name, given) {
    let rows = null;
    try {
      rows = [JSON.parse(text)].flat();
    } catch { /* said below */ }
    if (!Array.isArray(rows) || !rows.length || !rows.every(isObject)) {
      return fail(`${name}: this is not a JSON array of objects.`);
    }
    if (Array.isArray(rows[0].requests)) return sessions(rows, name);
    if (isHashed(rows[0])) return hashed(rows, name, given);
    return logged(rows.map((row) => ["", row]), name);
  }

  /* text: a whole file. Throws an Error with one sentence if it is no trace; what the readers do not know is none. */
  function readTrace(text, name, blockTokens) {
    try {
      return read(text, name, blockTokens);
    } catch (error) {
      if (error.constructor === Error) throw error;
      return fail(`${name}: this trace cannot be read (${error.message}).`);
    }
  }

  function read(text, name, blockTokens) {
    const lines = text.replace(/^\ufeff/, "").split("\n");
    if (lines.length - 1 > shared().rows) fail(`${name}: more than ${shared().rows} lines.`);
    const head = lines.find((line) => trimmed(line));
    if (head === undefined) fail(`${name}: the file is empty.`);
    if (head.startsWith("kvreport-trace ")) return compact(lines, name);
    if (/^[\t-\r ]*\[[\t-\r ]*(?:\{|$)/.test(head)) return array(lines.join("\n"), name, blockTokens);
    let first = null;
    try {
      first = JSON.parse(head);
    } catch { /* a table, a log, or a document of several lines */ }
    if (first === null && trimmed(head).startsWith("{") && !mentionsUsage(head)) {
      return array(lines.join("\n"), name, blockTokens);
    }
    if (isObject(first) && Array.isArray(first.requests)) {
      return sessions(lines.filter((line) => trimmed(line)).map((line) => JSON.parse(line)), name);
    }
    if (isObject(first) && isHashed(first)) return hashed(objects(lines), name, blockTokens);
    if (
      isObject(first) || mentionsUsage(head) ||
      (!head.includes(",") && lines.slice(0, PROBE).some(mentionsUsage))
    ) return logged(lines.map((line) => [line, parsed(line)]), name);
    return table(lines, name);
  }

  /* --- reuse distances --------------------------------------------------------------------------------- */

  /* Counts at positions, with sums of all behind a position in logarithmic time. */
  function counter(size) {
    const counts = new Float64Array(size), tree = new Float64Array(size + 1);
    let total = 0;
    return {
      at: (position) => counts[position],
      add(position, amount) {
        counts[position] += amount;
        total += amount;
        for (let n = position + 1; n <= size; n += n & -n) tree[n] += amount;
      },
      after(position) {
        let below = 0;
        for (let n = position + 1; n; n -= n & -n) below += tree[n];
        return total - below;
      },
    };
  }

  /* The runs of a trace: stretches of blocks that one earlier request used last, with what lies in front of
     them in the order of use. unit: tokens of an engine's full block, or null for the trace's blocks. */
  function reuse(trace, unit) {
    if (!trace.blockTokens) return null;
    const last = new Int32Array(trace.distinct).fill(-1), owned = counter(trace.prompt.length);
    const runs = [], starts = [0], lengths = [];
    let distinct = 0;
    trace.paths.forEach((path, request) => {
      const prompt = trace.prompt[request];
      const units = (
        blocks,
      ) => (unit ? Math.floor(Math.min(blocks * trace.blockTokens, prompt) / unit) : blocks);
      const cuts = [];
      let owner = -2;
      path.forEach((node, index) => {
        if (last[node] !== owner) {
          owner = last[node];
          cuts.push([owner, units(index)]);
        }
        last[node] = request;
      });
      const end = units(path.length);
      cuts.forEach(([previous, begin], n) => {
        const length = (n + 1 < cuts.length ? cuts[n + 1][1] : end) - begin;
        if (!length) return;
        let distance = -1;
        if (previous < 0) distinct += length;
        else {
          distance = owned.after(previous) + begin;
          owned.add(previous, -Math.min(length, owned.at(previous)));
        }
        runs.push([request, previous, begin, length, distance]);
      });
      owned.add(request, end);
      lengths.push(end);
      starts.push(runs.length);
    });
    return { trace, unit: unit || trace.blockTokens, runs, starts, units: lengths, distinct };
  }

  function lruUnits(reused, capacity) {
    const found = new Float64Array(reused.units.length);
    for (const [request, , begin, length, distance] of reused.runs) {
      if (distance >= 0 && distance < capacity && found[request] >= begin) {
        found[request] += Math.min(length, capacity - distance);
      }
    }
    return found;
  }

  /* Belady's MIN with bypass: the block whose next use is farthest away goes, or is not stored. */
  function bestUnits(reused, capacity) {
    const total = reused.units.length, never = total + 1;
    const uses = reused.units.map(() => []);
    for (const [request, previous, begin, length] of reused.runs) {
      if (previous >= 0) uses[previous].push([begin, begin + length, request]);
    }
    uses.forEach((path, request) => {
      const end = path.length ? path[path.length - 1][1] : 0;
      if (end < reused.units[request]) path.push([end, reused.units[request], never]);
    });
    const resident = new Map(), farthest = heap();
    const key = (use, owner) => use * (total + 2) + owner;
    const found = new Float64Array(total);
    let free = capacity;
    for (let request = 0; request < total; request++) {
      let hit = 0;
      for (let n = reused.starts[request]; n < reused.starts[request + 1]; n++) {
        const previous = reused.runs[n][1];
        if (previous < 0) continue;
        hit += resident.get(key(request, previous)) || 0;
        resident.delete(key(request, previous));
      }
      found[request] = hit;
      for (const [begin, stop, use] of uses[request]) {
        const kept = Math.min(Math.max(hit - begin, 0), stop - begin), wanted = stop - begin - kept;
        let taken = Math.min(wanted, free);
        free -= taken;
        while (taken < wanted && farthest.size() && farthest.top()[0] > use) {
          const [far, , owner] = farthest.top();
          const have = resident.get(key(far, owner)) || 0;
          if (have > wanted - taken) {
            resident.set(key(far, owner), have - (wanted - taken));
            taken = wanted;
          } else {
            resident.delete(key(far, owner));
            farthest.pop();
            taken += have;
          }
        }
        if (kept + taken) {
          resident.set(key(use, request), kept + taken);
          farthest.push([use, begin, request]);
        }
        if (taken < wanted) break;
      }
    }
    return found;
  }

  /* Largest first: by next use, then depth. */
  function heap() {
    const items = [];
    const before = (a, b) =>
      a[0] > b[0] || (a[0] === b[0] && (a[1] > b[1] || (a[1] === b[1] && a[2] < b[2])));
    return {
      size: () => items.length,
      top: () => items[0],
      push(item) {
        let n = items.push(item) - 1;
        while (n && before(items[n], items[(n - 1) >> 1])) {
          const up = (n - 1) >> 1;
          [items[n], items[up]] = [items[up], items[n]];
          n = up;
        }
      },
      pop() {
        const end = items.pop();
        if (!items.length) return;
        items[0] = end;
        for (let n = 0;;) {
          let best = n;
          for (const child of [2 * n + 1, 2 * n + 2]) {
            if (child < items.length && before(items[child], items[best])) best = child;
          }
          if (best === n) return;
          [items[n], items[best]] = [items[best], items[n]];
          n = best;
        }
      },
    };
  }

  /* Hits of one size of cache. policy: "lru" or "best"; computeLast: at least one token is computed. */
  function hitCounts(reused, capacity, { policy = "lru", warmup = 0, computeLast = false } = {}) {
    const size = capacity === null ? reused.distinct : capacity;
    const found = policy === "best" ? bestUnits(reused, size) : lruUnits(reused, size);
    const first = Math.trunc(found.length * warmup);
    let promptTokens = 0, hitTokens = 0, blocks = 0, hitBlocks = 0;
    for (let request = first; request < found.length; request++) {
      const prompt = reused.trace.prompt[request];
      let hit = found[request];
      if (computeLast && hit * reused.unit >= prompt) hit = Math.floor((prompt - 1) / reused.unit);
      promptTokens += prompt;
      hitTokens += Math.min(hit * reused.unit, prompt);
      blocks += reused.units[request];
      hitBlocks += hit;
    }
    return {
      capacity,
      promptTokens,
      hitTokens,
      blocks,
      hitBlocks,
      rate: hitTokens / Math.max(promptTokens, 1),
    };
  }

  /* The fewest units that reach a hit rate; null if none do. */
  function unitsFor(reused, wanted, options) {
    if (hitCounts(reused, null, options).rate < wanted) return null;
    let low = 0, high = reused.distinct;
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      if (hitCounts(reused, middle, options).rate >= wanted) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /* What a model leaves out of a trace for its length: requests, their share, and that of their prompt tokens. */
  function leftOut(trace, limit) {
    const sum = (values) => values.reduce((total, one) => total + one, 0);
    const long = trace.prompt.filter((prompt) => prompt >= limit);
    const share = long.length / trace.prompt.length;
    return {
      requests: long.length,
      share,
      tokens: sum(long) / sum(trace.prompt),
      tooMany: share > shared().left_out,
    };
  }

  /* A model that serves prompts of a length: of those that may be named, the nearest in size. Rows of models.json. */
  function longerModel(models, slug, longest) {
    const size = models.find(([one]) => one === slug)?.[4] ?? 1;
    const able = models.filter(([, , , context, , named]) => context > longest && named)
      .map((one) => ({ id: one[1], name: one[2], context: one[3], far: Math.abs(Math.log(one[4] / size)) }));
    able.sort((a, b) => a.far - b.far || (a.id < b.id ? -1 : 1));
    return able[0] ?? null;
  }

  /* The text of a gzip stream; an archive may hold a thousand times its own size, so what comes out is counted. */
  async function unpacked(stream, most) {
    const reader = stream.pipeThrough(new DecompressionStream("gzip")).getReader(), parts = [];
    let size = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return new Blob(parts).text();
      size += value.length;
      if (size > most) {
        await reader.cancel();
        fail(`The archive has over ${most / 1e6} MB, which is the limit for a trace.`);
      }
      parts.push(value);
    }
  }

  const api = { readTrace, leftOut, longerModel, unpacked, reuse, hitCounts, unitsFor };
  root.kvTraffic = api;
})(typeof globalThis === "object" ? globalThis : this);
