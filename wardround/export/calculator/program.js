(function () {
  "use strict";
  // Plain JavaScript of 2011 (ES5), so that old browsers run it. Computes in double precision from the model's own
  // single-precision parameters; prepared values are rounded to single precision, as in training.
  var model = JSON.parse(document.getElementById("model").textContent);
  var columns = model.columns, outcome = model.outcome;
  var parts = model.parts.map(function (part) {
    return {
      share: part.share,
      shift: part.shift && new Float32Array(part.shift),
      layers: part.layers.map(function (layer) {
        return { outputs: layer.bias.length, kernel: new Float32Array(layer.kernel), bias: new Float32Array(layer.bias) };
      })
    };
  });
  var typical = new Float32Array(model.explanation.typical);

  // ---- the model ----

  function prepare(values) {
    var row = [];
    columns.forEach(function (column, place) {
      var value = values[place], missing = value === null;
      if (column.kind === "number") {
        if (!missing && column.low !== null) { value = Math.min(Math.max(value, column.low), column.high); }
        row.push(column.scale === 0 ? 0 : ((missing ? column.fill : value) - column.center) / column.scale);
      } else {
        column.categories.forEach(function (name) { row.push(name === (missing ? column.fill : value) ? 1 : 0); });
      }
      if (column.indicator) { row.push(missing ? 1 : 0); }
    });
    return new Float32Array(row);
  }

  function forward(part, row) {
    // The values before each layer, and the outputs.
    var before = [], values = [], place, input, output;
    for (place = 0; place < row.length; place += 1) { values.push(row[place] + (part.shift ? part.shift[place] : 0)); }
    part.layers.forEach(function (layer, number) {
      if (number) { values = values.map(function (value) { return value > 0 ? value : 0; }); }
      before.push(values);
      var sums = Array.prototype.slice.call(layer.bias);
      for (input = 0; input < values.length; input += 1) {
        if (values[input] !== 0) {
          for (output = 0; output < layer.outputs; output += 1) {
            sums[output] += values[input] * layer.kernel[input * layer.outputs + output];
          }
        }
      }
      values = sums;
    });
    return { before: before, outputs: values };
  }

  function logSum(values) {
    // The logarithm of the sum of exponentials.
    var largest = Math.max.apply(null, values), sum = 0;
    values.forEach(function (value) { sum += Math.exp(value - largest); });
    return largest + Math.log(sum);
  }

  function softmax(values) {
    var total = logSum(values);
    return values.map(function (value) { return Math.exp(value - total); });
  }

  function predict(row) {
    // Probabilities, or one value.
    var mixed = [];
    parts.forEach(function (part) {
      var outputs = forward(part, row).outputs;
      (outcome.kind === "value" ? outputs : softmax(outputs)).forEach(function (value, place) {
        mixed[place] = (mixed[place] || 0) + part.share * value;
      });
    });
    if (!outcome.map) { return mixed; }
    if (outcome.kind === "value") { return [mapped(mixed[0])]; }
    var risk = mapped(mixed[outcome.positive]);
    return outcome.positive === 1 ? [1 - risk, risk] : [risk, 1 - risk];
  }

  function within(risk) { return Math.min(Math.max(risk, outcome.map.sure), 1 - outcome.map.sure); }

  function mapped(value) {
    // What the site's own patients made of a risk or a value.
    var map = outcome.map;
    if (!map.log_odds) { return map.intercept + map.slope * value; }
    var odds = Math.log(within(value)) - Math.log(1 - within(value));
    return within(1 / (1 + Math.exp(-(map.intercept + map.slope * odds))));
  }

  function mappedScore(score) {
    if (!outcome.map.log_odds) { return mapped(score); }
    var risk = mapped(1 / (1 + Math.exp(-score)));
    return Math.log(risk) - Math.log(1 - risk);
  }

  // ---- the explanation: integrated gradients from the typical patient, as wardround.predict.explanation has them ----

  function scoresAt(row) {
    // What is explained, and its derivatives by the prepared values: of two classes the log-odds, of more the logarithm
    // of each probability less the mean of all, of a regression the value.
    var runs = parts.map(function (part) { return forward(part, row); });
    if (outcome.kind === "value") {
      var value = 0;
      runs.forEach(function (run, number) { value += parts[number].share * run.outputs[0]; });
      return { scores: [value], slopes: [backward(runs, parts.map(function (part) { return [part.share]; }))] };
    }
    var chances = runs.map(function (run) { return softmax(run.outputs); });
    var classes = outcome.classes.map(function (name, chosen) {
      var logs = runs.map(function (run, number) {
        return Math.log(parts[number].share) + run.outputs[chosen] - logSum(run.outputs);
      });
      return { log: logSum(logs), weights: softmax(logs) };
    });
    function toClasses(amounts) {
      // The score that takes so much of each class's logarithm.
      var score = 0;
      var seeds = chances.map(function (all, number) {
        var sum = 0;
        amounts.forEach(function (amount, place) { sum += amount * classes[place].weights[number]; });
        return all.map(function (chance, place) { return amounts[place] * classes[place].weights[number] - sum * chance; });
      });
      amounts.forEach(function (amount, place) { score += amount * classes[place].log; });
      return { score: score, slope: backward(runs, seeds) };
    }
    var many = classes.length, wanted = [];
    if (outcome.kind === "risk") {
      wanted.push(classes.map(function (one, place) { return place === outcome.positive ? 1 : -1; }));
    } else {
      classes.forEach(function (one, chosen) {
        wanted.push(classes.map(function (other, place) { return (place === chosen ? 1 : 0) - 1 / many; }));
      });
    }
    var found = wanted.map(toClasses);
    return {
      scores: found.map(function (one) { return one.score; }),
      slopes: found.map(function (one) { return one.slope; })
    };
  }

  function backward(runs, seeds) {
    // From derivatives by the outputs of every part to derivatives by the prepared values.
    var sum = [];
    runs.forEach(function (run, number) {
      var back = seeds[number];
      for (var depth = parts[number].layers.length - 1; depth >= 0; depth -= 1) {
        var layer = parts[number].layers[depth], values = run.before[depth], next = [];
        for (var input = 0; input < values.length; input += 1) {
          var found = 0;
          if (depth === 0 || values[input] > 0) {
            for (var output = 0; output < layer.outputs; output += 1) {
              found += back[output] * layer.kernel[input * layer.outputs + output];
            }
          }
          next.push(found);
        }
        back = next;
      }
      back.forEach(function (value, place) { sum[place] = (sum[place] || 0) + value; });
    });
    return sum;
  }

  function explain(row, output) {
    // One number a column; added to the typical patient's score they give the patient's.
    var path = model.explanation, difference = [], total = [], features = row.length, place;
    for (place = 0; place < features; place += 1) {
      difference.push(row[place] - typical[place]);
      total.push(0);
    }
    function between(share) {
      return difference.map(function (amount, place) { return typical[place] + share * amount; });
    }
    function add(low, width, before, after) {
      // A piece of the path; halved while the slope in its middle does not give the change over it.
      var middle = scoresAt(between(low + width / 2)), worst = 0;
      var gained = middle.slopes.map(function (slope, number) {
        var sum = 0, amounts = slope.map(function (value, place) {
          var amount = value * difference[place] * width;
          sum += amount;
          return amount;
        });
        worst = Math.max(worst, Math.abs(sum - (after[number] - before[number])));
        return amounts;
      });
      if (worst <= path.tolerance * width || width <= path.narrowest) {
        gained[output].forEach(function (amount, place) { total[place] += amount; });
        return;
      }
      add(low, width / 2, before, middle.scores);
      add(low + width / 2, width / 2, middle.scores, after);
    }
    var before = scoresAt(between(0)).scores, start = before[output], after;
    for (var piece = 0; piece < path.first; piece += 1) {
      after = scoresAt(between((piece + 1) / path.first)).scores;
      add(piece / path.first, 1 / path.first, before, after);
      before = after;
    }
    var at = 0, growth = 1;
    if (outcome.map) {
      // All contributions to an adapted prediction grow as their sum does.
      var distance = total.reduce(function (sum, amount) { return sum + amount; }, 0);
      growth = Math.abs(distance) > path.tolerance
        ? (mappedScore(start + distance) - mappedScore(start)) / distance : outcome.map.slope;
    }
    return columns.map(function (column) {
      var width = (column.kind === "number" ? 1 : column.categories.length) + (column.indicator ? 1 : 0), sum = 0;
      for (var feature = 0; feature < width; feature += 1) { sum += total[at + feature]; }
      at += width;
      return growth * sum;
    });
  }

  // ---- words and numbers ----

  function percent(value) {
    var points = 100 * value;
    if (points < 0.1) { return "< 0.1\u00a0%"; }
    if (points > 99.9) { return "> 99.9\u00a0%"; }
    return (points < 10 || points > 90 ? points.toFixed(1) : points.toFixed(0)) + "\u00a0%";
  }

  function short(value) {
    var size = Math.abs(value);
    var text = size !== 0 && (size >= 1e6 || size < 0.001) ? size.toExponential(2) : String(Number(size.toPrecision(3)));
    return (value < 0 ? "−" : "") + text;
  }

  function withUnit(text, unit) { return unit ? text + " " + unit : text; }

  function told(column, value) {
    if (value === null) { return "unknown"; }
    return column.kind === "number" ? withUnit(String(value), column.unit) : value || "other";
  }

  // ---- the page ----

  function byId(name) { return document.getElementById(name); }

  function element(kind, name, text) {
    var made = document.createElement(kind);
    if (name) { made.className = name; }
    if (text !== undefined) { made.textContent = text; }
    return made;
  }

  function clear(box) { while (box.firstChild) { box.removeChild(box.firstChild); } }

  function fieldsOf(place) {
    return Array.prototype.slice.call(document.getElementsByName("column-" + place));
  }

  function read(place) {
    // The value of a column; null where it is unknown, undefined where it is no number.
    var column = columns[place], fields = fieldsOf(place), text = "";
    if (column.kind === "number") {
      var field = fields[0];
      text = field.value.replace(/^\s+|\s+$/g, "").replace(",", ".");
      if (text === "") { return field.validity && field.validity.badInput ? undefined : null; }
      return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) && isFinite(Number(text)) ? Number(text) : undefined;
    }
    if (fields[0].tagName === "SELECT") { text = fields[0].value; }
    fields.forEach(function (field) { if (field.type === "radio" && field.checked) { text = field.value; } });
    // A known category goes by its number, "other" stands for one that training never saw.
    return text === "" ? null : text === "other" ? "" : column.categories[Number(text)];
  }

  function write(place, text) {
    var column = columns[place], fields = fieldsOf(place), code = "";
    if (column.kind === "number") { fields[0].value = text; return; }
    if (text !== "") { code = column.categories.indexOf(text); code = code < 0 ? "other" : String(code); }
    if (fields[0].tagName === "SELECT") { fields[0].value = code; return; }
    if (code === "other") { code = ""; }
    fields.forEach(function (field) { field.checked = field.value === code; });
  }

  function remark(column, value) {
    // What is wrong or unusual about a value, if anything.
    if (value === undefined) { return { bad: true, text: "This is not a number." }; }
    if (value === "" && column.kind === "category") {
      return { text: "Training never saw such a value: the model leaves it out." };
    }
    if (value === null || column.kind !== "number" || !column.range) { return null; }
    var low = column.range[0], high = column.range[1];
    if (value >= low && value <= high) { return null; }
    var far = Math.max(low - value, value - high) > model.far * (high - low);
    var words = "Outside the " + (column.seen ? "training range, " : "range of the model, ") + column.range_words;
    if (far) { return { far: true, text: words + ": far outside, check the unit." }; }
    var clamped = column.low !== null && (value < column.low || value > column.high);
    var end = clamped ? withUnit(short(value < column.low ? column.low : column.high), column.unit) : "";
    return { far: false, text: words + (clamped ? ": counts as " + end + "." : ": the model was never tested there.") };
  }

  function mark(place, found) {
    var note = byId("note-" + place), box = byId("field-" + place);
    note.textContent = found ? found.text : "";
    box.className = box.className.replace(/ (odd|bad)\b/g, "") + (found ? found.bad || found.far ? " bad" : " odd" : "");
    fieldsOf(place).forEach(function (field) {
      if (field.type !== "radio") { field.setAttribute("aria-invalid", found && found.bad ? "true" : "false"); }
    });
  }

  function bar(label, share, strong) {
    var row = element("div", "chance" + (strong ? " strong" : ""));
    row.appendChild(element("span", "name", label));
    row.appendChild(element("span", "number", percent(share)));
    var track = element("span", "track"), fill = element("span", "fill");
    fill.style.width = 100 * share + "%";
    track.appendChild(fill);
    row.appendChild(track);
    return row;
  }

  function showRisk(found) {
    var risk = found[outcome.positive], flagged = outcome.single && Math.fround ? Math.fround(risk) : risk;
    flagged = flagged >= outcome.threshold;
    byId("figure").textContent = percent(risk);
    byId("brief").textContent = percent(risk);
    byId("gauge-fill").style.width = 100 * risk + "%";
    byId("verdict").textContent = flagged
      ? "At or above the operating point: counts as “" + outcome.classes[outcome.positive] + "”"
      : "Below the operating point: counts as “" + outcome.classes[1 - outcome.positive] + "”";
    byId("verdict").className = "verdict" + (flagged ? " flagged" : "");
    byId("meaning").textContent = "Of 100 patients with such values the model expects about " +
      (risk < 0.005 ? "none" : Math.round(100 * risk)) + " to have the outcome.";
    return flagged ? outcome.positive : 1 - outcome.positive;
  }

  function likeliest(found) {
    var best = 0;
    found.forEach(function (value, place) { if (value > found[best]) { best = place; } });
    return best;
  }

  function showClasses(found) {
    var best = likeliest(found), box = byId("chances");
    byId("figure").textContent = outcome.classes[best];
    byId("brief").textContent = outcome.classes[best] + ", " + percent(found[best]);
    byId("meaning").textContent = "The likeliest outcome, with a probability of " + percent(found[best]) + ".";
    clear(box);
    outcome.classes.map(function (name, place) { return place; })
      .sort(function (one, other) { return found[other] - found[one] || one - other; })
      .forEach(function (place) { box.appendChild(bar(outcome.classes[place], found[place], place === best)); });
    return best;
  }

  function showValue(found) {
    byId("figure").textContent = withUnit(short(found[0]), outcome.unit);
    byId("brief").textContent = withUnit(short(found[0]), outcome.unit);
    byId("meaning").textContent = "The model's best guess of " + outcome.name + " for a patient with such values.";
    return 0;
  }

  function effect(amount) {
    if (outcome.kind === "value") {
      return (amount > 0 ? "+" : "") + withUnit(short(amount), outcome.unit);
    }
    var times = Math.exp(Math.abs(amount));
    return "odds " + (amount > 0 ? "× " : "÷ ") + (times < 100 ? times.toFixed(times < 10 ? 2 : 0) : "100 or more");
  }

  function showExplanation(values, row, chosen) {
    var amounts = explain(row, outcome.kind === "classes" ? chosen : 0), box = byId("pushes"), small = 0, largest = 0;
    var what = outcome.kind === "value" ? outcome.name : outcome.kind === "risk" ? "the risk" : "“" + outcome.classes[chosen] + "”";
    var start = predict(typical);
    var usual = outcome.kind === "value" ? withUnit(short(start[0]), outcome.unit) : percent(start[chosen]);
    byId("against").textContent = "What raises (▲) or lowers (▼) " + what + " against a typical patient of training (" +
      usual + "). " + (outcome.kind === "value" ? "Added up" : "Multiplied") + ", all effects make the whole difference" +
      (outcome.kind === "risk" ? " in odds." : outcome.kind === "value" ? "." : " in odds, against the mean of all outcomes.");
    clear(box);
    amounts.forEach(function (amount) { largest = Math.max(largest, Math.abs(amount)); });
    amounts.map(function (amount, place) { return place; })
      .sort(function (one, other) { return Math.abs(amounts[other]) - Math.abs(amounts[one]) || one - other; })
      .forEach(function (place) {
        var amount = amounts[place];
        if (Math.abs(amount) < 0.005 * Math.max(largest, 1e-9) || Math.abs(amount) < 1e-9) { small += 1; return; }
        var item = element("li", amount > 0 ? "up" : "down");
        item.appendChild(element("span", "name", columns[place].label + ": " + told(columns[place], values[place])));
        var words = element("span", "effect", (amount > 0 ? "▲ " : "▼ ") + effect(amount));
        words.insertBefore(element("span", "hidden", amount > 0 ? "raises: " : "lowers: "), words.firstChild);
        item.appendChild(words);
        var track = element("span", "push"), fill = element("span", "fill");
        fill.style.width = 50 * Math.abs(amount) / largest + "%";
        track.appendChild(fill);
        item.appendChild(track);
        box.appendChild(item);
      });
    if (small) {
      box.appendChild(element("li", "rest", small + (small === 1 ? " value makes" : " values make") + " hardly a difference."));
    }
    return amounts;
  }

  function showWarnings(values, remarks) {
    var box = byId("warnings"), unknown = 0;
    clear(box);
    remarks.forEach(function (found, place) {
      if (found) { box.appendChild(element("li", found.bad || found.far ? "bad" : "", columns[place].label + ": " + found.text)); }
    });
    values.forEach(function (value) { if (value === null) { unknown += 1; } });
    if (unknown && unknown < columns.length) {
      box.appendChild(element("li", "quiet", unknown + " of " + columns.length + " values " + (unknown === 1 ? "is" : "are") +
        " unknown and " + (unknown === 1 ? "counts" : "count") + " as typical: fill in what you know."));
    }
    strange.forEach(function (name) {
      box.appendChild(element("li", "bad", "The address of this page names " + name));
    });
    box.hidden = !box.firstChild;
  }

  function show() {
    window.clearTimeout(waiting);
    var values = columns.map(function (column, place) { return read(place); });
    var remarks = columns.map(function (column, place) { return remark(column, values[place]); });
    var bad = false, known = false;
    remarks.forEach(function (found, place) { mark(place, found); bad = bad || Boolean(found && found.bad); });
    values.forEach(function (value) { known = known || (value !== null && value !== undefined); });
    showWarnings(values, remarks);
    var ready = known && !bad, doubtful = remarks.some(function (found) { return found && found.far; });
    byId("answer").className = doubtful ? "doubtful" : "";
    byId("waiting").hidden = ready;
    byId("answer").hidden = !ready;
    byId("explanation").hidden = !ready;
    byId("waiting").textContent = bad ? "Correct the marked value first." : "Enter what you know about the patient.";
    var root = document.documentElement;
    root.removeAttribute("data-result");
    if (!ready) {
      byId("brief").textContent = "–";
      return;
    }
    var row = prepare(values), found = predict(row);
    var chosen = outcome.kind === "risk" ? showRisk(found) : outcome.kind === "classes" ? showClasses(found) : showValue(found);
    if (doubtful) { byId("brief").textContent = "check the values"; }
    var about = outcome.kind === "risk" ? outcome.positive : chosen;
    unhurried(function () {
      var pushes = showExplanation(values, row, about);
      // What a script that checks the page reads: all digits.
      root.setAttribute("data-result", JSON.stringify({
        predicted: found, outcome: outcome.kind === "value" ? null : outcome.classes[chosen], contributions: pushes
      }));
    });
  }

  var waiting = null, large = false;
  parts.forEach(function (part) {
    part.layers.forEach(function (layer) { large = large || (part.layers.length > 1 && layer.kernel.length > 4000); });
  });

  function unhurried(action) {
    // At once; of a large network, which takes long, only when nothing has been typed for a moment.
    if (!large) { action(); return; }
    clear(byId("pushes"));
    byId("against").textContent = "Calculating …";
    waiting = window.setTimeout(action, 500);
  }

  var strange = [];

  function readAddress() {
    // #age=81&sex=F fills the inputs. The page never writes there: an address is kept in the browser's history.
    strange = [];
    window.location.hash.replace(/^#/, "").split("&").forEach(function (pair) {
      var cut = pair.indexOf("="), name, text, place = -1;
      if (cut < 1) { return; }
      try {
        name = decodeURIComponent(pair.slice(0, cut));
        text = decodeURIComponent(pair.slice(cut + 1));
      } catch (error) { return; }
      columns.forEach(function (column, number) { if (column.name === name) { place = number; } });
      if (place < 0) {
        strange.push("“" + name + "”, which the model does not know.");
        return;
      }
      write(place, text);
      if (text !== "" && (read(place) === null || read(place) === undefined)) {
        strange.push("“" + text + "” for " + columns[place].label + ", which is " +
          (columns[place].kind === "number" ? "not a number." : "not among its values: it counts as unknown."));
      }
    });
  }

  function listen(target, kind, action) { target.addEventListener(kind, action, false); }

  var form = byId("patient");
  listen(form, "input", show);
  listen(form, "change", show);
  listen(form, "submit", function (event) { event.preventDefault(); });
  listen(form, "reset", function () { strange = []; window.setTimeout(show, 0); });
  listen(byId("print"), "click", function () { window.print(); });
  listen(window, "hashchange", function () { readAddress(); show(); });
  listen(window, "beforeprint", function () { byId("card").open = true; });
  readAddress();
  show();
})();
