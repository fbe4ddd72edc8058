//! Every model yields the control values; no time is asserted.

use executor::Model;
use lab::{
    Control, Costs, ExperimentReport, Mix, Optimum, RunPlan, SeriesReport, Workload, numbered, page, run, table,
};
use std::sync::Arc;

const CORES: usize = 2;

fn plan(workload: Workload, requests: u32) -> RunPlan {
    RunPlan { workload: Arc::new(workload), requests, queue_max: 512 }
}

#[test]
fn the_whole_experiment_has_the_values_of_its_source_sequentially_and_on_event_loops() {
    let plan = plan(Workload::source(0.001, 1), 100_000);
    for name in ["inline", "event-loop"] {
        let run = run(Model::parse(name, CORES).unwrap(), &plan).unwrap();
        let told = run.control.to_string();
        assert_eq!(told, "result 6.49994e+10, waits 18920 ms, yields 49800, requests 100000", "{name}");
    }
}

#[test]
fn every_numbered_experiment_has_its_control_values() {
    let plan = plan(Workload::source(0.01, 1), 10_001);
    let expected = Control::of(&plan.workload, plan.requests);
    for experiment in numbered(CORES) {
        let run = run(experiment.model, &plan).unwrap();
        assert_eq!(run.control, expected, "{}", experiment.title);
        assert!(run.latency.max >= 10.0, "{}: two requests wait 10 ms", experiment.title);
        let waiting: f64 = run.timeline.waiting.iter().sum::<f64>() * run.timeline.step;
        assert!(waiting >= 0.02, "{}: the timeline shows all waits, {waiting} s", experiment.title);
    }
}

#[test]
fn threads_at_the_peak_are_those_of_the_model() {
    let plan = plan(Workload::source(0.01, 1), 2000);
    // One more for the submitter.
    for (name, threads) in [("inline", 1), ("pool:5", 6), ("io-aware:7/2", 8), ("event-loop:2", 3), ("hybrid:2/6", 9)] {
        let run = run(Model::parse(name, CORES).unwrap(), &plan).unwrap();
        assert_eq!(run.threads_peak, threads, "{name}");
    }
    let run = run(Model::Waves { size: 4 }, &plan).unwrap();
    assert!((2..=5).contains(&run.threads_peak), "{}", run.threads_peak);
}

#[test]
fn a_mix_runs_through_every_model_with_its_waits_and_yields() {
    let mix = "[[kinds]]\nevery = 10\nsteps = [\"cpu 5us\", \"wait 1ms\", \"yield\", \"wait 2ms\"]\n\
               [[kinds]]\nsteps = [\"yield\", \"cpu 5us\", \"yield\"]\n";
    let plan = plan(Workload::of_mix(Mix::parse(mix).unwrap(), 0.1, 1), 200);
    for experiment in numbered(CORES) {
        let control = run(experiment.model, &plan).unwrap().control;
        assert_eq!((control.requests, control.waits_ms, control.yields), (200, 60.0, 380), "{}", experiment.title);
    }
}

/// A report of two short runs.
fn report(workload_name: &str) -> SeriesReport {
    let plan = plan(Workload::source(0.01, 1), 1001);
    let costs = Costs::measure(&plan.workload, plan.requests);
    let optimum = Optimum::of(&plan, CORES, &costs);
    let experiments = numbered(CORES).into_iter().filter(|one| matches!(one.number, Some(1 | 12 | 15)));
    let experiments = experiments.map(|one| {
        let runs = (0..3).map(|_| run(one.model, &plan).unwrap()).collect();
        ExperimentReport::of(one, runs, &optimum).unwrap()
    });
    SeriesReport {
        workload: workload_name.to_owned(),
        requests: plan.requests,
        scale: 0.01,
        work: 1,
        cores: CORES,
        queue_max: plan.queue_max,
        costs,
        optimum,
        experiments: experiments.collect(),
    }
}

#[test]
fn the_table_has_a_row_for_each_experiment_and_the_optimum() {
    let text = table(&report("the classic experiment"));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("the classic experiment: 1001 requests"), "{text}");
    assert!(lines[1].starts_with("control values of every run: result 6.5"), "{text}");
    assert!(lines[2].starts_with("optimum 0.") && lines[2].contains("the largest of"), "{text}");
    assert!(lines[4].contains("above opt."), "{text}");
    assert_eq!(lines.len(), 8, "{text}");
    let columns = |line: &str| line.chars().count();
    assert!(
        lines[5..].iter().all(|line| columns(line) == columns(lines[4])),
        "the columns stand under their heads: {text}"
    );
}

#[test]
fn the_page_stands_alone_and_explains_each_model_that_ran() {
    let report = report("a <mix> & \"more\".toml");
    let page = page(&report);
    assert!(page.contains("a &lt;mix&gt; &amp; &quot;more&quot;.toml") && !page.contains("<mix>"));
    for outside in ["http://", "https://", "src=", "<link", "@import", "url("] {
        assert!(!page.contains(outside), "the page needs {outside}");
    }
    assert_eq!(page.matches("<section>").count(), 3);
    assert_eq!(page.matches("<svg").count(), 4, "a comparison, and the timelines of each");
    let scrolled = page.matches("<div class=\"wide drawing\"><svg").count();
    assert_eq!(scrolled, 4, "a narrow page scrolls each drawing instead of shrinking its labels");
    assert!(page.contains(".drawing svg { min-width: 700px; }"));
    for text in
        ["no thread ever waits", "One thread takes the requests", "prefers-color-scheme: dark", "12. IO-aware pool"]
    {
        assert!(page.contains(text), "{text}");
    }
    // How fast the models are depends on the machine: one is the fastest, or several are tied.
    let fastest = report.fastest();
    let text =
        if fastest.len() == 1 { "this one came closest to the optimum" } else { "as the closest to the optimum" };
    let named: Vec<&str> = page.split("<section>").skip(1).filter(|section| section.contains(text)).collect();
    assert_eq!(named.len(), fastest.len(), "{page}");
    for one in fastest {
        let title = one.experiment.title.as_str();
        assert!(named.iter().any(|section| section.contains(title)), "{title}: {named:?}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf"), "every figure is a number");
}
