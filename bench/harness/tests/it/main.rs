//! The harness from outside: fio's real reports read, a whole run with a stand-in for fio, reports held to golden files.

mod parsing;
mod rendering;
mod running;
