use super::*;
use crate::window::tests::window;

pub(crate) fn pair(
    slots: usize,
    max_size_bytes: usize,
    start: u64,
) -> (RegisterWriter<crate::Window>, RegisterReader, crate::Window) {
    let layout = Layout::new(slots, max_size_bytes).unwrap();
    let window = window(layout.required_bytes());
    let writer = RegisterWriter::new(window.clone(), layout, start).unwrap();
    let reader = RegisterReader::new(window.clone(), layout, start).unwrap();
    (writer, reader, window)
}

#[test]
fn a_register_is_empty_until_the_first_message_of_its_session() {
    let (mut writer, mut reader, _) = pair(3, 64, 1 << 60);
    let mut buffer = [0; 64];
    assert_eq!(reader.read(&mut buffer), Ok(ReadOutcome::Empty));
    assert_eq!(reader.peek_sequence(), None);
    assert_eq!(writer.write(&[b"ab", b"c"], 7), Ok((1 << 60) + 1));
    let sample = Sample {
        sequence: (1 << 60) + 1,
        len_bytes: 3,
        time_ns: 7,
    };
    assert_eq!(reader.read(&mut buffer), Ok(ReadOutcome::New(sample)));
    assert_eq!(&buffer[..3], b"abc");
    assert_eq!(reader.read(&mut buffer), Ok(ReadOutcome::Unchanged(sample)));
    assert_eq!(reader.peek_sequence(), Some(sample.sequence));
}
