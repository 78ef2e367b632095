//! The figures of a run: windows, their statistics, CSV and a picture.

use super::checkpoint_sampler::CheckpointTimes;
use super::latency_histogram::LatencyHistogram;
use std::fmt::Write as _;
use std::time::Duration;

/// One second of a run.
#[derive(Clone, Debug)]
pub(crate) struct LoadWindow(pub(crate) LatencyHistogram);

/// What a run has measured.
#[derive(Clone, Debug)]
pub(crate) struct LoadFigures {
    pub(crate) label: String,
    pub(crate) clients: u32,
    pub(crate) windows: Vec<LoadWindow>,
    /// The longest time without any reply.
    pub(crate) longest_stall: Duration,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
    pub(crate) client_cpu: Duration,
    /// 0 for a store that was not started here.
    pub(crate) node_cpu: Duration,
    /// Most memory of each node, in sum.
    pub(crate) node_memory: u64,
    /// When checkpoints were written; without seconds if the store does not say so.
    pub(crate) checkpoints: CheckpointTimes,
    /// What happened at which second.
    pub(crate) marks: Vec<(u64, String)>,
}

/// The columns of [`LoadFigures::row`].
pub(crate) const SUMMARY_COLUMNS: &str = "run,clients,seconds,operations,mean,sd,se,min,max,longest_stall_ms,stalled_seconds,\
p50_ms,p99_ms,p999_ms,max_ms,client_cpu_us_per_op,node_cpu_us_per_op,node_memory_mb,errors,\
checkpoints,mean_out,mean_in,p99_out_ms,p99_in_ms";
/// The columns of [`LoadFigures::window_rows`].
pub(crate) const WINDOW_COLUMNS: &str =
    "run,second,operations,p50_ms,p99_ms,max_ms,checkpoint,event";

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl LoadFigures {
    fn counts(&self) -> impl Iterator<Item = u64> + Clone {
        self.windows.iter().map(|window| window.0.count())
    }

    pub(crate) fn operations(&self) -> u64 {
        self.counts().sum()
    }

    /// Operations per second: the mean of all windows, their standard deviation, and the mean's standard error.
    pub(crate) fn mean(&self) -> (f64, f64, f64) {
        let count = self.windows.len().max(1) as f64;
        let mean = self.operations() as f64 / count;
        let squares: f64 = self.counts().map(|it| (it as f64 - mean).powi(2)).sum();
        let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
        (mean, deviation, deviation / count.sqrt())
    }

    /// Windows with less than a twentieth of the median.
    fn stalled(&self) -> usize {
        let mut counts: Vec<u64> = self.counts().collect();
        counts.sort_unstable();
        let median = counts.get(counts.len() / 2).copied().unwrap_or(0);
        counts.iter().filter(|count| **count * 20 < median).count()
    }

    pub(crate) fn latencies(&self) -> LatencyHistogram {
        let mut all = LatencyHistogram::new();
        self.windows.iter().for_each(|window| all.merge(&window.0));
        all
    }

    /// The summary as a row of [`SUMMARY_COLUMNS`].
    pub(crate) fn row(&self) -> String {
        let (mean, deviation, error) = self.mean();
        let (all, operations) = (self.latencies(), self.operations());
        let [outside, inside] = [false, true].map(|is_in| {
            let (count, latencies) = self.part(is_in);
            let mean = latencies.count() as f64 / count.max(1) as f64;
            (mean, milliseconds(latencies.quantile(0.99)))
        });
        format!(
            "{},{},{},{operations},{mean:.1},{deviation:.1},{error:.1},{},{},{:.1},{},{:.3},{:.3},{:.3},{:.3},{:.2},{:.2},{:.1},{},{},{:.1},{:.1},{:.3},{:.3}",
            self.label,
            self.clients,
            self.windows.len(),
            self.counts().min().unwrap_or(0),
            self.counts().max().unwrap_or(0),
            milliseconds(self.longest_stall),
            self.stalled(),
            milliseconds(all.quantile(0.5)),
            milliseconds(all.quantile(0.99)),
            milliseconds(all.quantile(0.999)),
            milliseconds(all.max()),
            self.per_operation(self.client_cpu),
            self.per_operation(self.node_cpu),
            self.node_memory as f64 / 1e6,
            self.errors,
            self.checkpoints.made,
            outside.0,
            inside.0,
            outside.1,
            inside.1,
        )
    }

    /// Microseconds of this CPU time for one operation.
    fn per_operation(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e6 / self.operations().max(1) as f64
    }

    /// Was a checkpoint being written in this second?
    fn is_in_checkpoint(&self, second: usize) -> bool {
        self.checkpoints.seconds.get(second) == Some(&true)
    }

    /// The windows with or without a checkpoint: their number and latencies.
    fn part(&self, is_in: bool) -> (usize, LatencyHistogram) {
        let (mut count, mut latencies) = (0, LatencyHistogram::new());
        for (second, window) in self.windows.iter().enumerate() {
            if self.is_in_checkpoint(second) == is_in {
                count += 1;
                latencies.merge(&window.0);
            }
        }
        (count, latencies)
    }

    /// The summary for people: two lines.
    pub(crate) fn lines(&self) -> [String; 2] {
        let (mean, deviation, error) = self.mean();
        let all = self.latencies();
        let first = format!(
            "{}: {mean:.0} ± {deviation:.0} op/s (SE {error:.0}), min {}, longest stall {:.0} ms, {} s stalled",
            self.label,
            self.counts().min().unwrap_or(0),
            milliseconds(self.longest_stall),
            self.stalled(),
        );
        let mut second = format!(
            "    p50 {:.2} ms, p99 {:.2}, p99.9 {:.2}, max {:.1}; CPU µs/op: client {:.1}, nodes {:.1}; nodes' memory {:.0} MB",
            milliseconds(all.quantile(0.5)),
            milliseconds(all.quantile(0.99)),
            milliseconds(all.quantile(0.999)),
            milliseconds(all.max()),
            self.per_operation(self.client_cpu),
            self.per_operation(self.node_cpu),
            self.node_memory as f64 / 1e6,
        );
        if self.checkpoints.made > 0 {
            let [(outs, outside), (ins, inside)] = [false, true].map(|is_in| self.part(is_in));
            let _ = write!(
                second,
                "; {} checkpoints: {:.0} op/s out ({outs} s, p99 {:.2} ms), {:.0} in ({ins} s, p99 {:.2} ms)",
                self.checkpoints.made,
                outside.count() as f64 / outs.max(1) as f64,
                milliseconds(outside.quantile(0.99)),
                inside.count() as f64 / ins.max(1) as f64,
                milliseconds(inside.quantile(0.99)),
            );
        }
        if self.errors > 0 {
            let reason = self.first_error.as_deref().unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = write!(second, "; {} errors, the first: {reason}", self.errors);
        }
        [first, second]
    }

    /// All windows as rows of [`WINDOW_COLUMNS`].
    pub(crate) fn window_rows(&self) -> String {
        let mut rows = String::new();
        for (second, window) in self.windows.iter().enumerate() {
            let marks = self.marks.iter().filter(|mark| mark.0 == second as u64);
            let marks: Vec<&str> = marks.map(|mark| mark.1.as_str()).collect();
            let _ = writeln!(
                rows,
                "{},{second},{},{:.3},{:.3},{:.3},{},{}",
                self.label,
                window.0.count(),
                milliseconds(window.0.quantile(0.5)),
                milliseconds(window.0.quantile(0.99)),
                milliseconds(window.0.max()),
                u8::from(self.is_in_checkpoint(second)),
                marks.join("; "),
            );
        }
        rows
    }
}

/// Width, height and margins of the picture.
const SIZE: (f64, f64) = (900.0, 420.0);
const MARGIN: (f64, f64) = (70.0, 50.0);
/// Colours of the runs, in turn.
const COLOURS: [&str; 8] = [
    "#1b6ca8", "#c8553d", "#3a7d44", "#7b4b94", "#b8860b", "#2a9d8f", "#6d6875", "#d62828",
];

/// Seconds and operations as places in the picture.
struct PictureScale {
    seconds: f64,
    /// Operations per second at the upper edge.
    top: f64,
}

impl PictureScale {
    fn x(&self, second: f64) -> f64 {
        MARGIN.0 + second / self.seconds * (SIZE.0 - MARGIN.0 - 20.0)
    }

    fn y(&self, count: f64) -> f64 {
        SIZE.1 - MARGIN.1 - count / self.top * (SIZE.1 - 2.0 * MARGIN.1)
    }
}

/// Throughput over time of several runs as SVG, one line each, with a dot at each second in which a checkpoint was written;
/// events are vertical lines.
pub(crate) fn throughput_svg(title: &str, runs: &[LoadFigures]) -> String {
    let (width, height) = SIZE;
    let legend = 18.0 * runs.len() as f64;
    let seconds = runs.iter().map(|run| run.windows.len()).max().unwrap_or(1);
    let top = runs.iter().flat_map(LoadFigures::counts).max().unwrap_or(1);
    let scale = PictureScale {
        seconds: seconds.max(1) as f64,
        top: top.max(1) as f64,
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{}\" y=\"24\" font-size=\"15\">{}</text>\n",
        height + legend,
        MARGIN.0,
        escaped(title),
    );
    let has_checkpoints = |run: &LoadFigures| run.checkpoints.seconds.contains(&true);
    if runs.iter().any(has_checkpoints) {
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"24\" text-anchor=\"end\">dots: a checkpoint was being written</text>",
            width - 20.0,
        );
    }
    put_axes(&mut svg, &scale);
    for (index, run) in runs.iter().enumerate() {
        put_run(&mut svg, &scale, index, run);
    }
    svg.push_str("</svg>\n");
    svg
}

fn put_axes(svg: &mut String, scale: &PictureScale) {
    let (width, height) = SIZE;
    for part in 0..=4 {
        let count = scale.top * f64::from(part) / 4.0;
        let at = scale.y(count);
        let _ = writeln!(
            svg,
            "<line x1=\"{}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{count:.0}</text>",
            MARGIN.0,
            width - 20.0,
            MARGIN.0 - 6.0,
            at + 4.0,
        );
        let second = scale.seconds * f64::from(part) / 4.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{second:.0} s</text>",
            scale.x(second),
            height - MARGIN.1 + 18.0,
        );
    }
}

/// Adds the line of a run, its dots, its events and its line of the legend.
fn put_run(svg: &mut String, scale: &PictureScale, index: usize, run: &LoadFigures) {
    let height = SIZE.1;
    let colour = COLOURS[index % COLOURS.len()];
    // The colours return, then with broken lines.
    let dashes = ["none", "6 3", "2 3"][(index / COLOURS.len()).min(2)];
    let mut points = Vec::new();
    for (second, count) in run.counts().enumerate() {
        let (x, y) = (scale.x(second as f64 + 0.5), scale.y(count as f64));
        points.push(format!("{x:.1},{y:.1}"));
        if run.is_in_checkpoint(second) {
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
            );
        }
    }
    let _ = writeln!(
        svg,
        "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"{dashes}\" points=\"{}\"/>\n\
         <text x=\"{}\" y=\"{}\" fill=\"{colour}\">{}: {:.0} op/s</text>",
        points.join(" "),
        MARGIN.0,
        height + 18.0 * index as f64,
        escaped(&run.label),
        run.mean().0,
    );
    for (second, mark) in &run.marks {
        let at = scale.x(*second as f64);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{}\" y2=\"{}\" stroke=\"{colour}\" stroke-dasharray=\"4 3\"/>\
             <text x=\"{:.1}\" y=\"{}\" font-size=\"10\" fill=\"{colour}\">{}</text>",
            MARGIN.1,
            height - MARGIN.1,
            at + 3.0,
            MARGIN.1 - 4.0,
            escaped(mark),
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(counts: &[u64]) -> LoadFigures {
        let window = |count: &u64| {
            let mut histogram = LatencyHistogram::new();
            (0..*count).for_each(|it| histogram.add(Duration::from_micros(100 + it)));
            LoadWindow(histogram)
        };
        LoadFigures {
            label: "a < b".to_owned(),
            clients: 8,
            windows: counts.iter().map(window).collect(),
            longest_stall: Duration::from_millis(5),
            errors: 1,
            first_error: Some("lost".to_owned()),
            client_cpu: Duration::from_millis(10),
            node_cpu: Duration::from_millis(20),
            node_memory: 1_000_000,
            checkpoints: CheckpointTimes {
                seconds: vec![false, true, false, false],
                made: 1,
            },
            marks: vec![(1, "kill -9 of the leader n1".to_owned())],
        }
    }

    #[test]
    fn statistics_are_those_of_the_windows() {
        let run = run(&[100, 300, 200, 0]);
        let (mean, deviation, error) = run.mean();
        assert!((mean - 150.0).abs() < 1e-9);
        // Squares of 50, 150, 50, 150 over three.
        assert!((deviation - 129.099).abs() < 1e-3 && (error - 64.549).abs() < 1e-3);
        assert_eq!(run.stalled(), 1);
        let row = run.row();
        assert!(
            row.starts_with("a < b,8,4,600,150.0,129.1,64.5,0,300,5.0,1,"),
            "{row}"
        );
        assert!(row.contains(",16.67,33.33,1.0,1,1,100.0,300.0,"), "{row}");
        assert_eq!(row.split(',').count(), SUMMARY_COLUMNS.split(',').count());
        let windows = run.window_rows();
        let second = windows.lines().nth(1).unwrap();
        assert!(
            second.starts_with("a < b,1,300,") && second.ends_with(",1,kill -9 of the leader n1")
        );
        assert_eq!(second.split(',').count(), WINDOW_COLUMNS.split(',').count());
        assert!(run.lines()[1].contains("1 errors, the first: lost"));
    }

    #[test]
    fn a_picture_escapes_labels_and_draws_nothing_as_nothing() {
        let svg = throughput_svg("x", &[run(&[1, 2])]);
        assert!(
            svg.contains("a &lt; b: 2 op/s") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
        assert_eq!(
            svg.matches("<circle").count(),
            1,
            "one second has a checkpoint"
        );
        assert!(svg.contains("dots: a checkpoint"));
        assert!(throughput_svg("x", &[]).ends_with("</svg>\n"));
        assert!(throughput_svg("x", &[run(&[])]).contains("a &lt; b"));
    }
}
