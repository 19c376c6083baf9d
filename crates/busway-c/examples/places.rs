//! Prints the header from which a real-time core knows where its channels lie: `places SYSTEM.toml HOST > places.h`.

#[path = "../tests/support/mod.rs"]
mod support;

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), Some(host)) = (arguments.next(), arguments.next()) else {
        return Err("give the system file and the host: places SYSTEM.toml HOST".into());
    };
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    let system = busway_system::System::parse(&text, file.as_ref()).map_err(|error| error.to_string())?;
    print!("{}", support::places(&system, &host)?);
    Ok(())
}
