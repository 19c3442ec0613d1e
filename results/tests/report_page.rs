//! The page of `vramlab report`: in a browser with every control used, as a file, and with a million events.

mod browser;
mod support;

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use browser::Browser;
use support::{Folder, call, example, rows};

/// The page is drawn.
const DRAWN: &str = "typeof state !== 'undefined' && state.first > 0";
/// Bytes of a page with a million events, at most.
const PAGE_MAX: usize = 15 << 20;
const EVENTS: usize = 1_000_000;

/// Two steps on a device of 64 MiB, one request too large for it, and names that would be markup or move a cursor.
fn hostile(folder: &Folder) -> String {
    let mut lines = String::new();
    let mut line = |value: Value| writeln!(lines, "{value}").expect("written");
    line(json!({"op": "mark", "name": "load <script>window.pwned=1</script>"}));
    for id in 0..20_u64 {
        line(
            json!({"op": "alloc", "id": id, "size": 100_000 + id * 4096, "site": "model to device"}),
        );
    }
    for step in 0..2_u64 {
        line(json!({"op": "mark", "name": format!("step {step} \u{1b}[2J\u{202e}\u{0}")}));
        for id in 100..140_u64 {
            let site = match id % 3 {
                0 => "<img src=x onerror=window.pwned=1>",
                1 => "</script><script>window.pwned=1</script>",
                _ => "forward \"quoted\" &lt;b&gt; \u{1b}]0;x\u{7}",
            };
            line(
                json!({"op": "alloc", "id": id, "size": 400_000 + id * 1000, "stream": id % 2, "site": site}),
            );
        }
        for id in (100..140_u64).rev() {
            line(json!({"op": "free", "id": id}));
        }
    }
    line(json!({"op": "alloc", "id": 999, "size": 63_u64 << 20, "site": "too large"}));
    folder.file("<b>page\u{1b}.jsonl", lines)
}

/// Waits for two frames, so that what a control asked for is drawn.
const FRAMES: &str =
    "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));";

impl Browser {
    /// Runs a script, waits until it is drawn, and gives what `value` is then.
    fn then(&mut self, script: &str, value: &str) -> Value {
        self.script(&format!("(async () => {{ {script}; {FRAMES} return {value}; }})()"))
    }
}

#[test]
fn every_control_does_what_it_says_and_names_are_only_names() {
    let folder = Folder::new();
    let (recording, page) = (hostile(&folder), folder.path("page.html"));
    let other = example("bert_b8_s128_fp32_python_stacks.pickle.gz");
    let args = ["report", &recording, &other, "-o", &page, "--capacity", "64MiB", "--budget", "10"];
    let (code, out, err) = call(&[&args[..], &["--strategy", "classic.best_fit"]].concat());
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("Out of memory on 64 MiB"), "{out}");
    let Some(mut browser) = Browser::start("report_page") else { return };
    browser.open(Path::new(&page), DRAWN);

    // names
    assert_eq!(browser.script("document.scripts.length"), json!(3));
    assert_eq!(
        browser.script("document.images.length + document.querySelectorAll('b').length"),
        json!(0)
    );
    assert_eq!(browser.script("document.body.innerText.includes('\\u001b')"), json!(false));
    let text = browser.script("byId('answer').innerText");
    let text = text.as_str().expect("a text");
    assert!(text.contains("Out of memory on 64 MiB"), "{text}");

    // a click on the timeline chooses a buffer; the panel tells of it
    let chosen = browser.then(
        "const box = state.timeline.canvas.getBoundingClientRect();
         for (const kind of ['pointerdown', 'pointerup']) state.timeline.canvas.dispatchEvent(new PointerEvent(kind,
           { pointerId: 1, bubbles: true, clientX: box.left + box.width / 2, clientY: box.bottom - 4 }))",
        "[state.chosen, byId('life-body').innerText]",
    );
    assert!(chosen[0].as_i64().is_some_and(|life| life >= 0), "{chosen}");
    assert!(chosen[1].as_str().is_some_and(|text| text.contains("asked for")), "{chosen}");
    let tip = browser.then(
        "state.timeline.canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: box().left + 300, clientY: box().bottom - 4 }));
         function box() { return state.timeline.canvas.getBoundingClientRect(); }",
        "byId('tip').hidden || byId('tip').textContent",
    );
    assert!(tip.as_str().is_some_and(|text| text.contains("from op")), "{tip}");

    // zoom, move, everything, by button and by key
    let span = "state.timeline.view.t1 - state.timeline.view.t0";
    let all = browser.script(span).as_f64().expect("a number");
    let mut now = |script: &str| browser.then(script, span).as_f64().expect("a number");
    assert!(now("byId('in').click()") < all);
    assert_eq!(now("byId('all').click()"), all);
    let key = |key: &str| {
        format!(
            "document.body.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true }}))"
        )
    };
    assert!(now(&key("+")) < all);
    let from = "state.timeline.view.t0";
    let before = browser.script(from).as_f64();
    assert!(browser.then(&key("ArrowLeft"), from).as_f64() < before);
    assert_eq!(browser.then(&key("0"), span).as_f64(), Some(all));
    let wheel = "state.timeline.canvas.dispatchEvent(new WheelEvent('wheel', { deltaY: -200, clientX: 300, cancelable: true }))";
    assert!(browser.then(wheel, span).as_f64() < Some(all));
    browser.then(
        "byId('out').click(); byId('left').click(); byId('right').click(); byId('to-peak').click()",
        "0",
    );
    assert_eq!(
        browser.then("byId('to-oom').click()", "state.op === state.run.about.first_oom"),
        json!(true)
    );

    // search: its matches are counted, Escape ends it
    let found = browser.then(
        "state.setQuery('\"too large\" >1MiB')",
        "[state.matches.reduce((a, b) => a + b), byId('found').hidden]",
    );
    assert_eq!(found, json!([1, false]));
    assert_eq!(
        browser.then("state.setQuery('onerror')", "byId('found').querySelectorAll('img').length"),
        json!(0)
    );
    assert_eq!(browser.then(&key("Escape"), "byId('found').hidden"), json!(true));
    assert_eq!(browser.then(&key("/"), "document.activeElement.id"), json!("search"));

    // moments
    let moments = "byId('scrub').value = 0; byId('scrub').dispatchEvent(new Event('input'))";
    assert_eq!(browser.then(moments, "state.moment"), json!(0));
    assert_eq!(browser.then("byId('after').click()", "state.moment"), json!(1));
    assert_eq!(browser.then("byId('before').click()", "state.moment"), json!(0));
    browser.then("byId('map-oom').click()", "0");
    assert_eq!(
        browser.then("byId('map-peak').click()", "state.op === state.run.about.peak_op"),
        json!(true)
    );

    // every choice of every list, of both recordings
    for recording in 0..2 {
        let set = |id: &str, n: usize| {
            format!(
                "byId('{id}').selectedIndex = {n}; byId('{id}').dispatchEvent(new Event('change'))"
            )
        };
        browser.then(&set("history", recording), "0");
        for id in ["run", "order", "group", "map-order"] {
            let count =
                browser.script(&format!("byId('{id}').options.length")).as_u64().expect("a number");
            for n in (0..count as usize).rev() {
                browser.then(&set(id, n), "0");
            }
        }
        adds_up(&mut browser);
    }
    ends_as_inspected(&mut browser, &other);
    let theme = "getComputedStyle(document.body).backgroundColor";
    let light = browser.script(theme);
    assert_ne!(browser.then("byId('theme').click()", theme), light);
    let rows = browser.then(
        "document.querySelectorAll('#whatif tr.link').forEach((row) => row.click())",
        "state.run.about.label",
    );
    assert!(rows.is_string(), "{rows}");
    browser.then(
        "document.querySelectorAll('#moment tr.link, #kept tr.link').forEach((row) => row.click())",
        "0",
    );
    browser.then("document.querySelectorAll('#life button, .paste button').forEach((button) => button.click())", "0");
    browser.ask(
        "Emulation.setDeviceMetricsOverride",
        json!({"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": false}),
    );
    let wide = browser.then(
        "window.dispatchEvent(new Event('resize'))",
        "document.documentElement.scrollWidth <= 400",
    );
    assert_eq!(wide, json!(true), "nothing hangs out of a narrow screen");
    browser.ask("Page.printToPDF", json!({}));
    assert_eq!(browser.script("window.pwned"), Value::Null);
    assert_eq!(browser.trouble, Vec::<String>::new());
}

/// The state that a snapshot ends with is on the page as `inspect` tells it, cause by cause.
fn ends_as_inspected(browser: &mut Browser, snapshot: &str) {
    let (inspected, _) = rows(0, &["inspect", snapshot]);
    let end = &inspected[0]["end"];
    let names = "rounding unsplit_remainder waiting wrong_pool wrong_stream cached split_remainder pinned outside";
    let causes: Vec<Value> = names.split(' ').map(|name| end["causes"][name].clone()).collect();
    let run =
        browser.script("(state.setRun(state.history.runs.length - 1), state.run.about.label)");
    assert_eq!(run, json!("as the file ends, not replayed"));
    let told = browser.script("[state.run.momentReserved[0], [...state.run.causes(0)]]");
    assert_eq!(told, json!([end["reserved"], causes]));
    browser.script("state.setRun(0)");
}

/// What the page counts from its buffers is what the replay counted, at every moment that both know.
fn adds_up(browser: &mut Browser) {
    let told = browser.script(
        "(() => {
           let moments = 0;
           const { history } = state, failed = new Set(state.run.refused);
           for (let n = 0; n < state.run.op.length; n++) {
             const op = state.run.op[n];
             let live = 0, groups = new Float64Array(history.groups);
             history.each(op, (life) => { if (!failed.has(history.birth[life])) live += history.size[life]; });
             if (live !== state.run.momentRequested[n]) return `op ${op}: ${live} and ${state.run.momentRequested[n]}`;
             history.groupBytes(op, groups);
             if (groups.reduce((a, b) => a + b) !== (history.live[history.eventAt(op)] ?? 0)) return `groups at op ${op}`;
             const causes = state.run.causes(n).reduce((a, b) => a + b);
             if (causes !== state.run.momentReserved[n] - live) return `causes at op ${op}: ${causes}`;
             moments++;
           }
           return moments;
         })()",
    );
    assert!(told.as_u64().is_some_and(|moments| moments > 5), "{told}");
}

/// A training that goes on for a million requests and frees, from a few hundred sites.
fn long(folder: &Folder) -> String {
    let mut lines = String::with_capacity(EVENTS * 60);
    let (mut state, mut id, mut live) = (7_u64, 0_u64, Vec::new());
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut events = 0;
    while events < EVENTS {
        for n in 0..200 + random(200) {
            let size = 512 << random(12);
            writeln!(
                lines,
                r#"{{"op":"alloc","id":{id},"size":{},"site":"layer {} forward"}}"#,
                size * (1 + random(30)),
                n % 300
            )
            .expect("written");
            live.push(id);
            (id, events) = (id + 1, events + 1);
        }
        while live.len() > 2000 + events / 1000 {
            let gone = live.swap_remove(random(live.len() as u64) as usize);
            writeln!(lines, r#"{{"op":"free","id":{gone}}}"#).expect("written");
            events += 1;
        }
    }
    folder.file("long.jsonl", lines)
}

/// Printed: size, first paint, first drawing, frames a second while zooming. Times depend on the machine; only what no machine may pass is a failure.
#[test]
fn a_million_events_are_small_and_fluid() {
    let folder = Folder::new();
    let (recording, page) = (long(&folder), folder.path("page.html"));
    let (code, out, err) = call(&["report", &recording, "-o", &page, "--budget", "1", "--quiet"]);
    assert_eq!(code, 0, "{out}{err}");
    let size = std::fs::metadata(&page).expect("written").len() as usize;
    println!("report_page: a million events are {:.1} MiB", size as f64 / f64::from(1 << 20));
    assert!(size <= PAGE_MAX, "{size} bytes");
    let Some(mut browser) = Browser::start("report_page") else { return };
    browser.ask(
        "Emulation.setDeviceMetricsOverride",
        json!({"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": false}),
    );
    browser.open(Path::new(&page), DRAWN);
    let paint = browser
        .script("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        .as_f64();
    let drawn = browser.script("state.first").as_f64().expect("a time");
    let rate = |browser: &mut Browser, order: &str| {
        browser.script(&format!(
            "(async () => {{
               byId('order').value = '{order}';
               byId('order').dispatchEvent(new Event('change'));
               {FRAMES}
               const canvas = state.timeline.canvas, from = performance.now(), first = state.timeline.frames;
               for (let n = 0; n < 60; n++) {{
                 canvas.dispatchEvent(new WheelEvent('wheel', {{ deltaY: n < 30 ? -120 : 120, clientX: 500, cancelable: true }}));
                 await new Promise((done) => requestAnimationFrame(done));
               }}
               return 1000 * (state.timeline.frames - first) / (performance.now() - from);
             }})()"
        ))
        .as_f64()
        .expect("a number")
    };
    let (stacked, placed) = (rate(&mut browser, "stack"), rate(&mut browser, "address"));
    println!(
        "report_page: first paint after {:.2} s, timeline after {:.2} s; zoom {stacked:.0} frames/s stacked, {placed:.0} by address",
        paint.expect("a time") / 1000.0,
        drawn / 1000.0
    );
    assert!(stacked > 3.0 && placed > 3.0, "a picture book");
    adds_up(&mut browser);
    assert_eq!(browser.trouble, Vec::<String>::new());
}

/// A name of a model was taken for a file, and two histories on one page did not say how they differ.
#[test]
fn models_and_comparisons_have_pages() {
    let folder = Folder::new();
    let page = folder.path("page.html");
    let quick = ["--budget", "2", "-o", page.as_str(), "--quiet"];
    let report = |args: &[&str]| call(&[&["report"], args, quick.as_slice()].concat());
    let (code, told, err) =
        report(&["bert", "--set", "layers=2,batch=4,seq=128,steps=2", "--passes", "none,amp"]);
    assert_eq!(code, 0, "{err}");
    assert!(told.starts_with("bert none\n") && told.contains("bert amp\n"), "{told}");
    let compared = told.lines().find(|line| line.starts_with("  compared: ")).expect("compared");
    assert!(
        compared.contains("Beside bert none: ") && compared.contains("activations -"),
        "{told}"
    );
    let text = std::fs::read_to_string(&page).expect("written");
    assert!(text.contains("bert amp") && text.contains("Beside bert none"));
    // a workload that is no graph, and a recording beside another
    let (code, told, err) = report(&["churn", "--set", "allocs=2000"]);
    assert!(code == 0 && told.starts_with("churn\n"), "{told}{err}");
    let [one, two] = ["bert_b8_s128_fp32_python_stacks.pickle.gz", "resnet50_b32_fp32.pickle.gz"];
    let (_, told, _) = report(&[&example(one), &example(two)]);
    assert!(told.contains(&format!("compared: Beside {one}: ")), "{told}");
    let (code, _, err) = report(&[&example(one), "--passes", "amp"]);
    assert!(code == 2 && err.contains("a recording has none"), "{err}");
    let (code, _, err) = report(&["churn", "--passes", "amp"]);
    assert!(code == 2 && err.contains("models: "), "{err}");
}

#[test]
fn a_page_is_written_whole_or_not_at_all() {
    let folder = Folder::new();
    let good = example("bert_b64_s512_fp32_oom_16gb.pickle.gz");
    let bad = folder.file("bad.jsonl", "{\"op\":\"alloc\",\"id\":1,\"size\":1}\n{\"op\":");
    let empty = folder.file("empty.jsonl", "{\"op\":\"mark\",\"name\":\"m\"}\n");
    let page = folder.file("page.html", "before");
    let read = || std::fs::read_to_string(&page).expect("read");
    for (file, code, why) in
        [(&bad, 3, "line 2"), (&empty, 3, "no requests"), (&page, 2, "is the input")]
    {
        let (found, out, err) = call(&["report", file, "-o", &page]);
        assert_eq!((found, out.as_str()), (code, ""), "{err}");
        assert!(err.contains(why), "{err}");
        assert_eq!(read(), "before", "what was there stays");
    }
    let nowhere = folder.path("no/such\u{0}folder/page.html").replace('\0', "");
    std::fs::write(folder.path("no"), "a file").expect("written");
    let (code, _, err) = call(&["report", &good, "-o", &nowhere, "--budget", "1"]);
    assert_eq!(code, 7, "{err}");

    let (code, out, err) = call(&["report", &bad, &good, "-o", &page, "--budget", "1"]);
    assert_eq!(code, 4, "{out}{err}");
    let first = read();
    assert!(
        first.contains("exhausted with each") || first.contains("requests fail with each"),
        "the answer is in it"
    );
    let (code, ..) = call(&["report", &bad, &good, "-o", &page, "--budget", "1"]);
    assert_eq!(code, 4);
    assert!(first == read(), "the same bytes again");
}
