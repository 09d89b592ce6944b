//! `datetime.strftime`, as far as chat templates use it, in UTC.

use std::fmt::{Display, Write};

fn push(out: &mut String, value: impl Display) {
    write!(out, "{value}").expect("writing to a string does not fail");
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// `datetime.strftime` of a time in UTC, seconds since 1970; a directive that is not known stays as it is.
pub(crate) fn strftime(format: &str, seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let month_name = MONTHS[month as usize - 1];
    let day_name = DAYS[(days % 7) as usize];
    let hour_12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    let mut out = String::new();
    let mut characters = format.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let plain = characters.next_if_eq(&'-').is_some();
        let width = if plain { 1 } else { 2 };
        match characters.next() {
            Some('Y') => push(&mut out, year),
            Some('m') => push(&mut out, format_args!("{month:0width$}")),
            Some('d') => push(&mut out, format_args!("{day:0width$}")),
            Some('H') => push(&mut out, format_args!("{hour:0width$}")),
            Some('I') => push(&mut out, format_args!("{hour_12:0width$}")),
            Some('M') => push(&mut out, format_args!("{minute:0width$}")),
            Some('S') => push(&mut out, format_args!("{second:0width$}")),
            Some('y') => push(&mut out, format_args!("{:0width$}", year % 100)),
            Some('B') => out.push_str(month_name),
            Some('b') => out.push_str(&month_name[..3]),
            Some('A') => out.push_str(day_name),
            Some('a') => out.push_str(&day_name[..3]),
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('F') => push(&mut out, format_args!("{year}-{month:02}-{day:02}")),
            Some('T') => push(&mut out, format_args!("{hour:02}:{minute:02}:{second:02}")),
            // transformers asks a clock that knows no time zone.
            Some('Z' | 'z') => {}
            Some('D') => push(&mut out, format_args!("{month:02}/{day:02}/{:02}", year % 100)),
            Some('R') => push(&mut out, format_args!("{hour:02}:{minute:02}")),
            Some('e') => push(&mut out, format_args!("{day:2}")),
            Some('j') => push(&mut out, format_args!("{:03}", day_of_year(days))),
            Some('%') => out.push('%'),
            Some(other) => {
                out.push('%');
                out.extend(plain.then_some('-'));
                out.push(other);
            }
            None => out.push('%'),
        }
    }
    out
}

/// From 1.
fn day_of_year(days: u64) -> u64 {
    let (year, _, _) = civil(days);
    let before = (0..366.min(days + 1)).take_while(|back| civil(days - back).0 == year).count();
    before as u64
}

/// Year, month and day of a day since 1970-01-01, by counting whole years and months: dates of this century are near.
fn civil(days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // 400 years have 146097 days, so the loop below runs at most 400 times.
    let (mut year, mut rest) = (1970 + days / 146_097 * 400, days % 146_097);
    while rest >= 365 + u64::from(leap(year)) {
        rest -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    for (month, length) in (1..).zip(lengths) {
        if rest < length {
            return (year, month, rest + 1);
        }
        rest -= length;
    }
    unreachable!("a year's months have a year's days")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_python_does() {
        let check = |format: &str, seconds: u64, expect: &str| assert_eq!(strftime(format, seconds), expect);
        check("%Y-%m-%d %H:%M:%S", 0, "1970-01-01 00:00:00");
        check("%d %b %Y", 1_721_952_000, "26 Jul 2024");
        check("%A, %-d %B %y, %I:%M %p", 1_709_210_096, "Thursday, 29 February 24, 12:34 PM");
        check("%F %T %Z%z|%% %q %-q %", 951_782_400, "2000-02-29 00:00:00 |% %q %-q %");
        check("%F", 4_107_542_400, "2100-03-01");
        check("%D %R %e %j", 1_709_210_096, "02/29/24 12:34 29 060");
        check("%e %j", 0, " 1 001");
    }
}
