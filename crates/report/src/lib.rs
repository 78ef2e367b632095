//! What people see: text, pages, charts.
