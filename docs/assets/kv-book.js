/* Chapters as a lab: predictions that lock the answer, exercises that are checked, quizzes. Every piece is
   whole without this file: the question, and the answer folded under it. What is entered stays in this
   browser (localStorage) and is never sent. */
(function () {
  "use strict";
  const { $, $$, fixed, make } = kvreport;
  const KEY = "kv-book";

  function remembered() {
    try {
      const kept = JSON.parse(localStorage.getItem(KEY) || "{}");
      return kept && typeof kept === "object" ? kept : {};
    } catch {
      return {};
    }
  }

  function remember(name, value) {
    try {
      const kept = remembered();
      if (value === null) delete kept[name];
      else kept[name] = value;
      localStorage.setItem(KEY, JSON.stringify(kept));
    } catch { /* a private window keeps nothing */ }
  }

  const number = (value) => {
    const size = Math.abs(value);
    const digits = size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2;
    const text = fixed(value, digits);
    return digits ? text.replace(/\.?0+$/, "") : text;
  };

  /* "off by 5.7×", or what stands for it where one of the two is 0. */
  function distance(said, answer) {
    if (said === answer) return "exactly right";
    if (said <= 0 || answer <= 0) return `off by ${number(Math.abs(said - answer))}`;
    const times = Math.max(said / answer, answer / said);
    if (times < 1.05) return "within 5%";
    return `off by ${times >= 10 ? number(Math.round(times)) : times.toFixed(1)}×`;
  }

  /* The answer's place: folded away and not to be opened until the reader has committed or gives up. */
  function lock(root) {
    const details = $("details", root);
    details.open = false;
    details.hidden = true;
    const skip = make(
      "button",
      { type: "button", class: "kv-plainbutton kv-skip" },
      "Show without answering",
    );
    skip.addEventListener("click", () => {
      skip.remove();
      open(root);
      $("summary", details).focus();
    });
    return skip;
  }

  function open(root) {
    const details = $("details", root);
    details.hidden = false;
    details.open = true;
    $(".kv-skip", root)?.remove();
  }

  /* What begins a piece, once however often the page asks. */
  const once = (begin) => (root) => {
    if (root.dataset.kvReady) return;
    root.dataset.kvReady = "true";
    begin(root);
  };

  const status = () => make("p", { class: "kv-said", role: "status", "aria-live": "polite" });

  /* --- a number ------------------------------------------------------------------------------------ */

  function guess(root) {
    const { kvGuess: name, unit, shown } = root.dataset;
    const [low, high, answer] = [root.dataset.low, root.dataset.high, root.dataset.answer].map(Number);
    const field = make("input", {
      type: "number",
      class: "kv-blank",
      min: low,
      max: high,
      step: root.dataset.step,
      required: true,
      inputmode: "decimal",
      "aria-labelledby": `kv-ask-${name} kv-unit-${name}`,
      "aria-describedby": `kv-range-${name}`,
    });
    const said = status();
    const form = make(
      "form",
      { class: "kv-attempt", novalidate: true },
      field,
      make("span", { id: `kv-unit-${name}`, class: "kv-unit" }, unit),
      make("button", { type: "submit", class: "md-button kv-lock" }, "Lock in"),
      lock(root),
      make(
        "span",
        { id: `kv-range-${name}`, class: "kv-range" },
        `A number from ${number(low)} to ${number(high)}.`,
      ),
    );
    const show = (value) => {
      said.textContent = `You said ${number(value)}; the answer is ${shown}${
        unit === "%" ? "" : " "
      }${unit}: ${distance(value, answer)}.`;
      field.value = String(value);
      field.readOnly = true;
      form.classList.add("kv-locked");
      $(".kv-lock", form)?.remove();
      open(root);
      again(root, name, form, () => {
        field.readOnly = false;
        field.value = "";
        field.focus();
      }, said);
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const value = field.valueAsNumber;
      if (!(value >= low && value <= high)) {
        said.textContent = `Enter a number from ${number(low)} to ${number(high)}.`;
        field.setAttribute("aria-invalid", "true");
        field.focus();
        return;
      }
      field.removeAttribute("aria-invalid");
      remember(name, value);
      show(value);
    });
    $(".kv-ask", root).after(form, said);
    const kept = remembered()[name];
    if (typeof kept === "number" && kept >= low && kept <= high) show(kept);
  }

  function again(root, name, form, reset, said) {
    if ($(".kv-again", form)) return;
    const button = make("button", { type: "button", class: "kv-plainbutton kv-again" }, "Try again");
    button.addEventListener("click", () => {
      remember(name, null);
      said.textContent = "";
      form.classList.remove("kv-locked");
      button.remove();
      const details = $("details", root);
      details.open = false;
      details.hidden = true;
      form.append(make("button", { type: "submit", class: "md-button kv-lock" }, "Lock in"));
      reset();
    });
    form.append(button);
  }

  /* --- one of several ------------------------------------------------------------------------------- */

  function choice(root) {
    const name = root.dataset.kvChoice;
    const list = $(".kv-options", root);
    const options = $$("li", list).map((li) => ({
      nodes: Array.from(li.childNodes),
      right: "right" in li.dataset,
      why: li.dataset.why,
    }));
    const said = status();
    const group = make("fieldset", { class: "kv-radios", "aria-labelledby": `kv-ask-${name}` });
    options.forEach((option, n) => {
      const id = `kv-${name}-${n}`;
      group.append(
        make(
          "label",
          { class: "kv-radio", for: id },
          make("input", { type: "radio", name: `kv-${name}`, id, value: n }),
          make("span", {}, ...option.nodes),
        ),
      );
    });
    const form = make(
      "form",
      { class: "kv-attempt kv-attempt--choice" },
      group,
      make("button", { type: "submit", class: "md-button kv-lock" }, "Lock in"),
      lock(root),
    );
    const show = (picked) => {
      const option = options[picked];
      const good = options.findIndex((one) => one.right);
      said.textContent = option.right
        ? `${"ABCDE"[picked]} is right.`
        : `You said ${"ABCDE"[picked]}; the answer is ${"ABCDE"[good]}. ${option.why}`;
      $$("input", group).forEach((input, n) => {
        input.checked = n === picked;
        input.disabled = true;
        input.parentElement.classList.toggle("kv-right", n === good);
        input.parentElement.classList.toggle("kv-wrong", n === picked && n !== good);
      });
      form.classList.add("kv-locked");
      $(".kv-lock", form)?.remove();
      open(root);
      root.dispatchEvent(new CustomEvent("kv-answered", { bubbles: true, detail: option.right }));
      again(root, name, form, () => {
        $$("input", group).forEach((input) => {
          input.disabled = input.checked = false;
          input.parentElement.classList.remove("kv-right", "kv-wrong");
        });
        $("input", group).focus();
      }, said);
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const picked = $$("input", group).findIndex((input) => input.checked);
      if (picked < 0) {
        said.textContent = "Choose one answer first.";
        $("input", group).focus();
        return;
      }
      remember(name, picked);
      show(picked);
      $(".kv-again", form)
        .focus(); /* the chosen button is disabled now, which would lose the reader's place */
    });
    list.replaceWith(form);
    form.after(said);
    const kept = remembered()[name];
    if (Number.isInteger(kept) && options[kept]) show(kept);
  }

  function quiz(root) {
    const score = make("p", { class: "kv-score", role: "status" });
    const right = new Set(), answered = new Set();
    root.addEventListener("kv-answered", (event) => {
      const place = $$(".kv-choice", root).indexOf(event.target);
      answered.add(place);
      if (event.detail) right.add(place);
      else right.delete(place);
      score.textContent =
        `${right.size} right of ${answered.size} answered, ${root.dataset.kvQuiz} questions.`;
    });
    root.after(score);
    $$(".kv-choice", root).forEach(kvreport.choice);
  }

  /* --- an exercise ---------------------------------------------------------------------------------- */

  function exercise(root) {
    const { kvExercise: name, unit } = root.dataset;
    const answer = Number(root.dataset.answer), within = Number(root.dataset.within);
    const traps = JSON.parse(root.dataset.traps);
    const near = (a, b) => Math.abs(a - b) <= Math.max(within * Math.abs(b), 1e-9);
    const said = status();
    const field = make("input", {
      type: "text",
      class: "kv-blank",
      inputmode: "decimal",
      autocomplete: "off",
      "aria-labelledby": `kv-ask-${name} kv-unit-${name}`,
    });
    const form = make(
      "form",
      { class: "kv-attempt" },
      field,
      make("span", { id: `kv-unit-${name}`, class: "kv-unit" }, unit),
      make("button", { type: "submit", class: "md-button kv-check" }, "Check"),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const value = Number(field.value.replace(/[,\s_]/g, ""));
      root.classList.remove("kv-solved");
      if (field.value.trim() === "" || !Number.isFinite(value)) {
        said.textContent = "Enter a number.";
        field.setAttribute("aria-invalid", "true");
        field.focus();
        return;
      }
      field.removeAttribute("aria-invalid");
      const trap = traps.find(([wrong]) => near(value, wrong));
      if (near(value, answer)) {
        said.textContent = "Right.";
        root.classList.add("kv-solved");
        remember(name, value);
        $("details", root).open = true;
      } else if (trap) said.textContent = `Not this one. ${trap[1]}`;
      else said.textContent = `Not yet: too ${value > answer ? "high" : "low"}, ${distance(value, answer)}.`;
    });
    $(".kv-ask", root).after(form, said);
    const kept = remembered()[name];
    if (typeof kept === "number" && near(kept, answer)) {
      field.value = String(kept);
      said.textContent = "Right.";
      root.classList.add("kv-solved");
    }
  }

  addEventListener("beforeprint", () =>
    $$(".kv-guess, .kv-choice, .kv-exercise").forEach((root) => {
      const details = $("details", root);
      details.hidden = false;
      details.open = true;
    }));

  Object.assign(kvreport, {
    guess: once(guess),
    choice: once(choice),
    quiz: once(quiz),
    exercise: once(exercise),
  });
})();
