/* The search's worker: this site's own engine behind the theme's dialog.

   The theme opens the dialog, fetches `search_index.json` and shows what comes back. It sends { type, data }
   with type 0 (set up: the index) and 2 (query: what was typed), and expects 1 (ready) and 3 (results).
   The index holds pages and their sections; `config.synonyms` holds groups of words with one meaning, `config.kinds`
   the names of each kind of thing that a question may name: "does sglang …" also asks of an engine. */
(function () {
  "use strict";

  const SETUP = 0, READY = 1, QUERY = 2, RESULT = 3;
  const MOST = 40, TEASER = 190;
  const WEIGHT = { name: 9, title: 4, text: 1 };
  const OF_ITS_KIND = 0.5, OF_ANOTHER_ENGINE = 0.6, CODE = 150;
  const STOP = new Set(
    "a an and are be by can do does for how i in is it its my of on or the to what when which why will with you"
      .split(
        " ",
      ),
  );
  /* What a number before it counts: the 200 of "200 agents" is no name, that of "b200 users" is. */
  const COUNTED =
    /^(agent|user|people|person|request|session|developer|dev|employee|student|customer|chat|conversation)$/;
  const isCount = (asked, n) =>
    /^\d+$/.test(asked[n]) && COUNTED.test(asked[n + 1] || "") && !/^[a-z]{1,2}$/.test(asked[n - 1] || "");
  /** @type {[RegExp, string][]} */
  const AMERICAN = [
    [/is(e|ed|es|er|ers|ing|ation|ations)$/, "iz$1"],
    [/yse(d|s|r)?$/, "yze$1"],
    [/our(s|ed|ing)?$/, "or$1"],
    [/^catalogue/, "catalog"],
    [/^centre/, "center"],
    [/^licence/, "license"],
    [/elling$/, "eling"],
  ];

  /* "Qwen3-32B" and "qwen 3 32b" are the same words; so are "quantisation" and "quantization". */
  function words(text) {
    const found = text.toLowerCase().normalize("NFKD").replace(/[\u0300-\u036f]/g, "")
      .match(/\d+(?:\.\d+)*[a-z]*|[a-z]+|\p{L}+/gu) || [];
    return found.map((word) => {
      if (word.length < 5 || /\d/.test(word)) return word;
      for (const [british, american] of AMERICAN) {
        if (british.test(word)) return word.replace(british, american);
      }
      return word;
    });
  }

  const singular = (
    word,
  ) => (word.length > 3 && word.endsWith("s") && !word.endsWith("ss") ? word.slice(0, -1) : word);
  const plain = (text) => words(text).map(singular);

  /* Whether two words differ by at most `most` letters put in, left out, changed or swapped. */
  function close(a, b, most) {
    if (Math.abs(a.length - b.length) > most) return false;
    let before = [], row = Array.from({ length: b.length + 1 }, (_, n) => n);
    for (let i = 1; i <= a.length; i++) {
      const next = [i];
      for (let j = 1; j <= b.length; j++) {
        const same = a[i - 1] === b[j - 1];
        next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (same ? 0 : 1));
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
          next[j] = Math.min(next[j], before[j - 2] + 1);
        }
      }
      before = row;
      row = next;
    }
    return row[b.length] <= most;
  }

  function setUp(index) {
    const pages = new Map(), postings = new Map();
    const kinds = Object.entries((index.config || {}).kinds || {}).flatMap(([kind, list]) =>
      list.map((name) => ({ kind, name: plain(name) }))
    ).filter(({ name }) => name.join("").length > 2 && !/^\d{1,3}$/.test(name.join("")));
    const engines = kinds.filter(({ kind }) => kind === "engine").map(({ name }) => name);
    index.docs.forEach((doc, number) => {
      const page = doc.location.split("#")[0];
      if (!pages.has(page)) pages.set(page, { main: undefined, boost: 1, names: [], engines: [] });
      const held = pages.get(page);
      if (!doc.location.includes("#")) {
        held.main = number;
        held.boost = doc.boost ?? 1;
        held.names = [doc.title, ...(doc.tags || [])].map(plain);
        held.engines = engines.filter((name) => place(held.names[0], name) >= 0);
      }
      const add = (tokens, weight) => {
        for (const token of new Set(tokens)) {
          if (!postings.has(token)) postings.set(token, new Map());
          const at = postings.get(token);
          at.set(number, Math.max(at.get(number) || 0, weight));
        }
      };
      add(plain(doc.text || ""), WEIGHT.text);
      add(plain(doc.title), doc.location.includes("#") ? WEIGHT.title : WEIGHT.name);
      if (!doc.location.includes("#")) { for (const tag of doc.tags || []) add(plain(tag), WEIGHT.name); }
    });
    const synonyms = ((index.config || {}).synonyms || []).map((group) => group.map(plain));
    return { docs: index.docs, pages, postings, synonyms, kinds, engines, vocabulary: [...postings.keys()] };
  }

  /* A query as it was typed, then with each synonym in its place. */
  function variants(asked, synonyms) {
    // "7900xtx" is also "7900 XTX".
    const apart = asked.flatMap((word) => /^\d+[a-z]{2,}$/.test(word) ? word.match(/\d+|[a-z]+/g) : [word]);
    const made = apart.length === asked.length ? [asked] : [asked, apart];
    for (const group of synonyms) {
      for (const phrase of group) {
        const at = place(asked, phrase);
        if (at < 0) continue;
        for (const other of group) {
          if (other === phrase) continue;
          made.push([...asked.slice(0, at), ...other, ...asked.slice(at + phrase.length)]);
        }
        break;
      }
    }
    return made.slice(0, 12);
  }

  function place(tokens, phrase) {
    for (let at = 0; at + phrase.length <= tokens.length; at++) {
      if (phrase.every((word, n) => tokens[at + n] === word)) return at;
    }
    return -1;
  }

  /* For each typed word: the kind of thing whose name ends there, and whether a name of that kind begins after it. */
  function kindsIn(held, asked) {
    const ends = [], before = [];
    for (const { kind, name } of held.kinds) {
      const at = place(asked, name);
      if (at < 0) continue;
      ends[at + name.length - 1] = kind;
      if (at > 0) before[at - 1] = kind;
    }
    return { ends, before };
  }

  /* Words of the index that a typed word may mean: [word, how well]. */
  function meant(held, token, unfinished, kind, counts) {
    /** @type {[string, number][]} */
    const found = [];
    if (held.postings.has(token)) found.push([token, 1]);
    // "h100 80" means 80 GB, "llama 70" means 70B; in "8 h100" the number counts.
    const sized = /^\d+$/.test(token) && !counts ? [`${token}gb`, `${token}b`] : [];
    for (const word of sized) if (held.postings.has(word)) found.push([word, 0.8]);
    // "llama 3" is also 3.1 and 3.3; a word that is still being typed is any that begins so.
    const version = /^\d+$/.test(token);
    for (const word of version || (unfinished && token.length > 1) ? held.vocabulary : []) {
      if (word !== token && word.startsWith(version ? `${token}.` : token)) found.push([word, 0.55]);
    }
    if (kind && held.postings.has(kind)) found.push([kind, OF_ITS_KIND]);
    if (found.length || token.length < 4 || /\d/.test(token)) return found;
    const most = token.length > 7 ? 2 : 1;
    for (const word of held.vocabulary) {
      if (!/\d/.test(word) && word[0] === token[0] && close(token, word, most)) found.push([word, 0.5]);
    }
    return found;
  }

  function scored(held, asked, typing, factor, scores) {
    // The "a" of A100 is no article.
    const places = asked.map((_, n) => n);
    const telling = places.filter((n) =>
      (!STOP.has(asked[n]) || /^\d/.test(asked[n + 1] || "")) && !isCount(asked, n)
    );
    const taken = telling.length ? telling : places, query = taken.map((n) => asked[n]);
    const total = held.docs.length;
    const about = held.engines.filter((name) => place(asked, name) >= 0);
    const byDoc = new Map();
    const { ends, before } = kindsIn(held, asked);
    const meanings = taken.map((at, n) =>
      new Map(meant(held, query[n], typing && n === query.length - 1, ends[at], before[at] === "gpu"))
    );
    meanings.forEach((words, n) => {
      for (const [word, fit] of words) {
        const at = held.postings.get(word);
        const rarity = Math.log(1 + total / at.size);
        for (const [number, weight] of at) {
          if (!byDoc.has(number)) byDoc.set(number, new Float64Array(query.length));
          const row = byDoc.get(number);
          row[n] = Math.max(row[n], weight * fit * rarity);
        }
      }
    });
    // What a word says is how rare it is: one that is nowhere says nothing.
    const telltale = meanings.map((words) =>
      Math.max(
        0,
        ...[...words].map(([word, fit]) => fit * Math.log(1 + total / held.postings.get(word).size)),
      )
    );
    const sum = (row) => row.reduce((all, value) => all + value, 0);
    const told = sum(telltale) || 1;
    const cover = (row) => sum(telltale.filter((_, n) => row[n] > 0)) / told;
    const byPage = new Map();
    for (const number of byDoc.keys()) {
      const page = held.docs[number].location.split("#")[0];
      if (!byPage.has(page)) byPage.set(page, []);
      byPage.get(page).push(number);
    }
    for (const [page, numbers] of byPage) {
      const { names, boost, main, engines } = held.pages.get(page);
      const elsewhere = engines.length && about.length && !engines.some((one) => about.includes(one));
      const entry = byDoc.get(main) || new Float64Array(query.length);
      const anywhere = new Float64Array(query.length);
      let best = 0;
      const parts = [];
      for (const number of numbers) {
        // A section stands under its page's title; what other sections say is not its.
        const row = byDoc.get(number).map((value, n) => Math.max(value, entry[n]));
        row.forEach((value, n) => {
          anywhere[n] = Math.max(anywhere[n], value);
        });
        best = Math.max(best, sum(row) * cover(row) ** 2);
        parts.push([sum(byDoc.get(number)) * cover(byDoc.get(number)), number]);
      }
      const title = Math.max(0, ...names.map((name) => named(name, meanings, telltale, asked)));
      const score = (best + 60 * title) * factor * Math.sqrt(boost) * (elsewhere ? OF_ANOTHER_ENGINE : 1);
      if (!scores.has(page) || scores.get(page).score < score) {
        scores.set(page, { score, parts, has: query.map((token, n) => [token, anywhere[n] > 0]) });
      }
    }
  }

  /* How far a name is what was asked: 2 is the same words, 1 has all of them in order, less has some of them. */
  function named(name, meanings, telltale, asked) {
    if (!name.length) return 0;
    if (name.length === asked.length && name.every((word, n) => word === asked[n])) return 2;
    let worst = 1, before = -1, ordered = true, held = 0;
    const used = new Set();
    meanings.forEach((words, n) => {
      let best = 0, at = -1;
      name.forEach((word, place) => {
        const fit = words.get(word) || 0;
        if (fit > best) [best, at] = [fit, place];
      });
      if (!best) return;
      used.add(at);
      held += telltale[n] * best;
      worst = Math.min(worst, best);
      ordered = ordered && at === before + 1 || before < 0;
      before = at;
    });
    if (!used.size) return 0;
    const share = held / telltale.reduce((all, value) => all + value, 0);
    // A product's name that was typed in full is what is asked about, whatever else was typed.
    if (name.length > 1 && /\d/.test(name.join("")) && place(asked, name) >= 0) return 2 * share;
    // Of a name that was not typed in full, what is missing on either side counts.
    if (used.size < meanings.length) {
      return 1.6 * share ** 2 * used.size / name.filter((w) => !STOP.has(w)).length;
    }
    if (name.length === meanings.length && ordered) return 1.9 * worst;
    return (ordered ? 0.8 : 0.6) * (0.5 + meanings.length / name.length / 2) * (0.5 + worst / 2);
  }

  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  /* The beginning of a text, or what surrounds the first word that was asked, with the words marked. */
  function teaser(text, tokens) {
    if (!text) return "";
    let from = 0;
    const wanted = tokens.filter((token) => token.length > 2);
    if (text.length > TEASER) {
      const at = wanted.map((token) => text.toLowerCase().indexOf(token)).filter((n) => n >= 0);
      const first = at.length ? Math.min(...at) : 0;
      if (first > TEASER - 30) {
        from = text.lastIndexOf(". ", first) + 1 || text.lastIndexOf(" ", first - 60) + 1;
      }
    }
    let cut = text.slice(from, from + TEASER);
    if (from + TEASER < text.length) cut = `${cut.slice(0, cut.lastIndexOf(" "))} …`;
    if (from > 0) cut = `… ${cut.trimStart()}`;
    const mark = wanted.map((token) => token.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
    const html = escaped(cut);
    return `<p>${
      mark ? html.replace(new RegExp(`(^|[^\\w&])(${mark})`, "gi"), "$1<mark>$2</mark>") : html
    }</p>`;
  }

  function search(held, text) {
    const asked = plain(text);
    if (!asked.length) return [];
    const scores = new Map();
    const typing = /[a-z0-9]$/i.test(text);
    variants(asked, held.synonyms).forEach((one, n) => scored(held, one, typing, n ? 0.9 : 1, scores));
    // A name of code is asked for where it is the title of a section: a column, a function.
    const code = text.trim().toLowerCase();
    for (const { title, location } of /^\w+_\w+$/.test(code) ? held.docs : []) {
      const found = scores.get(location.split("#")[0]);
      if (found && location.includes("#") && title.toLowerCase() === code) found.score += CODE;
    }
    const best = [...scores].sort((a, b) => b[1].score - a[1].score || (a[0] < b[0] ? -1 : 1)).slice(0, MOST);
    return best.map(([page, { score, parts, has }]) => {
      const { main } = held.pages.get(page);
      const order = parts.filter(([, number]) => number !== main).sort((a, b) => b[0] - a[0]).slice(0, 4);
      const terms = Object.fromEntries(has);
      const show = (number, value) => {
        const doc = held.docs[number];
        return {
          location: doc.location,
          title: escaped(doc.title),
          text: teaser(doc.text || "", asked),
          score: value,
          terms,
        };
      };
      const shown = main === undefined ? [] : [show(main, score)];
      // Sections with a lower score than their page are folded by the theme.
      return [...shown, ...order.map(([, number]) => show(number, shown.length ? score / 2 : score))];
    });
  }

  let held = null;
  globalThis.kvSearch = { setUp, search, words };
  addEventListener("message", (event) => {
    const { type, data } = event.data;
    if (type === SETUP) {
      held = setUp(data);
      postMessage({ type: READY });
    } else if (type === QUERY && held) {
      postMessage({ type: RESULT, data: { items: search(held, data) } });
    }
  });
})();
