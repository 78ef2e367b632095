//! The diagram of messages: time runs down, one line for each endpoint, one arrow for each message (Lamport's space-time
//! diagram).

use crate::message_journal::MessageEvent;
use crate::node_message::EndpointName;
use seatrial_machine::Time;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Distance of two endpoints, in pixels.
const COLUMN: usize = 160;
/// Distance of two events, in pixels.
const ROW: usize = 18;
/// Space around the diagram.
const MARGIN: usize = 60;

/// One end of an arrow, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ArrowEnd {
    at: Time,
    /// Index of the message.
    message: usize,
    is_arrival: bool,
}

/// The diagram as SVG. Rows are events in the order of time, so that messages of any latency are readable; a tooltip of each
/// arrow
/// has its times. Messages that never arrived end in a cross.
pub(crate) fn diagram(events: &[MessageEvent], omitted: u64) -> String {
    let names = columns(events);
    let mut ends: Vec<ArrowEnd> = Vec::with_capacity(2 * events.len());
    for (message, event) in events.iter().enumerate() {
        let end = |at, is_arrival| ArrowEnd {
            at,
            message,
            is_arrival,
        };
        ends.push(end(event.sent, false));
        ends.extend(event.arrived.map(|at| end(at, true)));
    }
    ends.sort_unstable();
    let mut rows = vec![(0, None); events.len()];
    for (row, end) in ends.iter().enumerate() {
        let y = MARGIN + (row + 1) * ROW;
        if end.is_arrival {
            rows[end.message].1 = Some(y);
        } else {
            rows[end.message].0 = y;
        }
    }
    let width = 2 * MARGIN + COLUMN * names.len().max(1);
    let height = 2 * MARGIN + ROW * (ends.len() + 1);
    let mut svg = opening(width, height);
    for (column, name) in names.iter().enumerate() {
        let x = x_of(column);
        let _ = writeln!(
            svg,
            "<text x='{x}' y='{}' class='name'>{}</text><line x1='{x}' y1='{MARGIN}' x2='{x}' y2='{}' class='life'/>",
            MARGIN - 12,
            escaped(name.as_str()),
            height - MARGIN,
        );
    }
    for (event, (from, to)) in events.iter().zip(&rows) {
        arrow(&mut svg, &names, event, *from, *to);
    }
    if omitted > 0 {
        let _ = writeln!(
            svg,
            "<text x='{MARGIN}' y='{}' class='name' style='text-anchor:start'>{omitted} later messages are not drawn</text>",
            height - MARGIN / 2,
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn opening(width: usize, height: usize) -> String {
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}'>\n\
         <style>text{{font:11px sans-serif;fill:#333}}.name{{font-weight:bold;text-anchor:middle}}.life{{stroke:#bbb}}\
         .m{{stroke:#3367a8;fill:none}}.c{{stroke:#2e7d32;fill:none}}.e,.lost{{stroke:#b3261e;fill:none}}\
         .lost{{stroke-dasharray:4 3}}</style>\n\
         <defs><marker id='head' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' orient='auto'>\
         <path d='M0 0L8 4L0 8z' fill='#555'/></marker></defs>\n\
         <rect width='100%' height='100%' fill='#fff'/>\n"
    )
}

/// The endpoints that occur: clients first, then nodes, then services.
fn columns(events: &[MessageEvent]) -> Vec<EndpointName> {
    let names: BTreeSet<&EndpointName> = events
        .iter()
        .flat_map(|event| [&event.src, &event.dest])
        .collect();
    let mut names: Vec<EndpointName> = names.into_iter().cloned().collect();
    names.sort_by_key(|name| {
        let class = (!name.is_client(), !name.is_node());
        (class, name.as_str().len(), name.clone())
    });
    names
}

const fn x_of(column: usize) -> usize {
    MARGIN + COLUMN / 2 + column * COLUMN
}

fn arrow(
    svg: &mut String,
    names: &[EndpointName],
    event: &MessageEvent,
    from: usize,
    to: Option<usize>,
) {
    let column = |name: &EndpointName| names.iter().position(|known| known == name).unwrap_or(0);
    let (start, end) = (x_of(column(&event.src)), x_of(column(&event.dest)));
    let class = match to {
        None => "lost",
        Some(_) if event.text.starts_with("error") => "e",
        Some(_) if event.src.is_client() || event.dest.is_client() => "c",
        Some(_) => "m",
    };
    let sent = event.sent.seconds();
    let times = event.arrived.map_or_else(
        || format!("sent at {sent:.6} s, never arrived"),
        |at| format!("sent at {sent:.6} s, arrived at {:.6} s", at.seconds()),
    );
    let text = escaped(&event.text);
    // A message that was lost is drawn to the middle of its way.
    let (x, y) = to.map_or((usize::midpoint(start, end), from + ROW), |y| (end, y));
    let head = if to.is_some() { "url(#head)" } else { "none" };
    let _ = write!(
        svg,
        "<g><title>{} {} → {}: {text}\n{times}</title><path d='M{start} {from}L{x} {y}' class='{class}' marker-end='{head}'/>",
        event.number, event.src, event.dest,
    );
    if to.is_none() {
        let _ = write!(
            svg,
            "<path d='M{} {}l8 8m0 -8l-8 8' class='e'/>",
            x.saturating_sub(4),
            y - 4
        );
    }
    let anchor = if end >= start { "start" } else { "end" };
    let label_x = if end >= start { start + 6 } else { start - 6 };
    let label: String = event.text.chars().take(40).collect();
    let _ = writeln!(
        svg,
        "<text x='{label_x}' y='{}' style='text-anchor:{anchor}'>{}</text></g>",
        from - 3,
        escaped(&label),
    );
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '\'' => safe.push_str("&#39;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, src: &str, dest: &str, text: &str, arrived: Option<u64>) -> MessageEvent {
        MessageEvent {
            number,
            src: EndpointName::new(src),
            dest: EndpointName::new(dest),
            text: text.into(),
            sent: Time::from_milliseconds(number),
            arrived: arrived.map(Time::from_milliseconds),
        }
    }

    #[test]
    fn every_message_is_an_arrow_and_text_is_escaped() {
        let events = [
            event(0, "c1", "n1", "echo {\"x\":\"<&'\"}", Some(2)),
            event(1, "n1", "n2", "gossip", None),
            event(3, "n1", "c1", "error {\"code\":11}", Some(4)),
            event(5, "n2", "lin-kv", "read", Some(9)),
        ];
        let svg = diagram(&events, 7);
        assert_eq!(svg.matches("<g>").count(), 4);
        assert!(svg.contains("&lt;&amp;&#39;") && !svg.contains("<&'"));
        assert!(svg.contains("never arrived") && svg.contains("7 later messages are not drawn"));
        let columns: Vec<_> = columns(&events).iter().map(ToString::to_string).collect();
        assert_eq!(columns, ["c1", "n1", "n2", "lin-kv"]);
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }

    #[test]
    fn an_empty_diagram_is_a_picture() {
        let svg = diagram(&[], 0);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }
}
