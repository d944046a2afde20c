/* The table of requests of a model's or an accelerator's page, which a state fills anew and which goes back to what was
   printed, and the reason where nothing serves. Needs kv-result.js. */
(function () {
  "use strict";

  const { $, $$, count, make, tokens, result } = kvreport;
  const words = kvKernel.words;

  const kept = new WeakMap();

  /* Keep a table and its lists as they were printed, before they are first rewritten. Further rows that nobody has
     read yet stay unread, so that they are not put under rewritten ones. */
  function keepTable(table, list) {
    const rest = table.tBodies[1];
    if (!kept.has(table)) {
      kept.set(table, {
        rows: kvreport.rowsOf(table).map((row) => row.cloneNode(true)),
        unread: rest?.dataset.kvRows,
        number: $("b", table.nextElementSibling || table)?.textContent,
        caption: table.caption.firstChild.textContent,
        groups: list?.cloneNode(true),
      });
    }
    if (rest) delete rest.dataset.kvRows;
  }

  /* Let the links of a place keep what the page asks: an address is completed when its link is followed. */
  function carry(place, stateOf) {
    const complete = ({ target }) => {
      const link = target.closest("a[href]"), state = link && stateOf(link);
      if (state) link.search = kvState.search({ ...state, model: undefined });
    };
    for (const kind of ["pointerdown", "keydown", "click"]) place?.addEventListener(kind, complete, true);
  }

  /* Give a table another caption; a button that stands in it stays. */
  function captioned(table, text) {
    table.caption.firstChild.textContent = text;
    table.closest("[role=region]").setAttribute("aria-label", text);
  }

  /* Put other groups below a table, whose heading is there with the first. */
  function putGroups(list, nodes) {
    list?.replaceChildren(...nodes);
    list?.previousElementSibling?.toggleAttribute("hidden", !list.children.length);
  }

  /* Put the table back as it was printed. */
  function restoreTable(root) {
    const table = $("#users-table", root);
    if (!table || !kept.has(table)) return;
    const { rows, unread, number, groups, caption } = kept.get(table);
    captioned(table, caption);
    kvreport.putRows(table, rows.map((row) => row.cloneNode(true)));
    if (unread) {
      const more = table.nextElementSibling;
      table.tBodies[1].dataset.kvRows = unread;
      more.hidden = false;
      $("b", more).textContent = number;
      kvreport.whole(table);
    }
    if (groups) putGroups($(".kv-groups", root), groups.cloneNode(true).children);
    if (!rows.length) table.closest(".kv-served")?.setAttribute("hidden", "");
  }

  const FOLDED = 24; /* members above which a list is folded, as in _groups.html */

  /* The lists of what does not serve, by reason: members of each as [id, link, note, what explains it]. */
  const groupNodes = (groups) =>
    groups.flatMap(([reason, members]) => {
      const listed = members.flatMap(([id, link, note, act], n) => {
        const told = note && act ? result.whyButton(note, act) : note && make("small", {}, note);
        return [n ? ", " : "", make("span", { id }, link, " ", told)];
      });
      const all = `Show all ${count(members.length)}`;
      const shown = members.length > FOLDED
        ? [make("details", { class: "kv-data" }, make("summary", {}, all), ...listed)]
        : listed;
      return [
        make("dt", {}, reason, " ", make("small", {}, `(${count(members.length)})`)),
        make("dd", {}, ...shown),
      ];
    });

  /* Make the printed cells and notes that say what is short open their explanation: open(row or name, context). */
  function openers(root, contexts, open) {
    for (const cell of $$("#users-table td.kv-no", root)) {
      if ($("button", cell) || cell.textContent === words.no_request.context_exceeds_model[0]) continue;
      const row = cell.parentElement, context = contexts[cell.cellIndex - 2];
      cell.replaceChildren(result.whyButton(cell.textContent, () => open(row, context)));
    }
    for (const note of $$(".kv-groups dd small", root)) {
      const name = note.parentElement;
      note.replaceWith(result.whyButton(note.textContent, () => open(name, null)));
    }
  }

  /* [the group's sentence, the accelerator's own figure] where nothing serves. */
  function whyNot(gpu, possible, context, published = true) {
    const widest = possible[possible.length - 1];
    if (!widest) return [words.cells[published ? "group_support" : "group_unpublished"], ""];
    const number = kvreport.plural(widest.devices, "GPU|GPUs");
    const answer = kvCapacity.serve(widest, context);
    const alone = widest.devices === 1 ? "_alone" : "";
    const say = (name) =>
      result.fill(words.cells[`group_${name}${alone}`] ?? words.cells[`group_${name}`], { number });
    const figure = (name, bytes) => result.fill(words.cells[name], { short: kvreport.missing(bytes) });
    switch (answer.verdict) {
      case "weights_exceed_memory": {
        const over = kvKernel.over(widest.weights, gpu.usable);
        return [say("weights"), figure("note_over", over > 0 ? over : answer.short)];
      }
      case "context_exceeds_model":
        return [
          result.fill(words.cells.group_below, { context: tokens(context) }),
          result.fill(words.cells.note_limit, { limit: tokens(widest.model.limit) }),
        ];
      case "max_seqs_exceeds_states":
        return [say("seqs"), ""];
      case "may_fit":
        return [say("may_fit"), figure("note_short", answer.short)];
      default:
        return [say("cache"), figure("note_short", answer.short)];
    }
  }

  Object.assign(kvreport, {
    carry,
    groupNodes,
    openers,
    restoreTable,
    keepTable,
    putGroups,
    captioned,
    whyNot,
  });
})();
