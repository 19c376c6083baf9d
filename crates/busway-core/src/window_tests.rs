use super::*;

/// Memory for a window that lives as long as the test.
pub(crate) fn window(len_bytes: usize) -> Window {
    window_of(len_bytes, Medium::Coherent)
}

pub(crate) fn window_of(len_bytes: usize, medium: Medium) -> Window {
    let words = Box::leak(vec![0_u64; len_bytes.div_ceil(WORD_BYTES)].into_boxed_slice());
    // SAFETY: leaked, so mapped for ever, aligned for `u64`, and reached through windows only from
    // here on.
    unsafe { Window::from_raw_parts(words.as_mut_ptr().cast(), len_bytes, medium) }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 3) as u8).collect()
}

#[test]
fn what_is_written_in_any_parts_is_read_back_in_any_pieces_on_every_medium() {
    let lengths: &[usize] = if cfg!(miri) {
        &[0, 1, 9, 70, 130]
    } else {
        &[
            0, 1, 7, 8, 9, 40, 63, 64, 65, 80, 127, 200, 1023, 1024, 1100, 5000, 262_143, 262_144, 300_001,
        ]
    };
    for medium in [Medium::Coherent, Medium::WriteCombining, Medium::Device] {
        for &len in lengths {
            let window = window_of(len + 40, medium);
            let data = bytes(len);
            for cut in [0, len / 3, len / 2 + 1, len].map(|cut| cut.min(len)) {
                let second = cut + (len - cut) / 2;
                let parts = [&data[..cut], &data[cut..second], &data[second..]];
                window.write(8, &[11, 12], &parts).unwrap();
                assert_eq!((window.load(8), window.load(16)), (Ok(11), Ok(12)));
                let mut back = vec![0; len];
                window.read(24, &mut back).unwrap();
                assert_eq!(back, data, "{medium:?} {len} {cut}");
                let mut piece = vec![0; second - cut];
                window.read(24 + cut, &mut piece).unwrap();
                assert_eq!(piece, data[cut..second]);
            }
        }
    }
}

#[test]
fn a_write_touches_nothing_beyond_the_last_word() {
    for len in [1, 8, 63, 64, 65, 100, if cfg!(miri) { 120 } else { 1500 }] {
        let window = window(len + 64);
        for offset in (0..len + 64 - 8).step_by(8) {
            window.store(offset, u64::MAX).unwrap();
        }
        window.write(16, &[], &[&bytes(len)]).unwrap();
        let end = 16 + len.next_multiple_of(8);
        assert_eq!((window.load(8), window.load(end)), (Ok(u64::MAX), Ok(u64::MAX)));
        let mut padding = vec![1; end - 16 - len];
        window.read(16 + len, &mut padding).unwrap();
        assert!(padding.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn an_access_outside_or_misaligned_is_refused_with_its_numbers() {
    let window = window(64);
    let refused = |offset_bytes, len_bytes| {
        Err(OutOfBounds {
            offset_bytes,
            len_bytes,
            window_bytes: 64,
        })
    };
    assert_eq!(window.load(64), refused(64, 8).map(|()| 0));
    assert_eq!(window.load(57), refused(57, 8).map(|()| 0));
    assert_eq!(
        window.load(usize::MAX - 7),
        refused(usize::MAX - 7, 8).map(|()| 0)
    );
    assert_eq!(window.store(60, 1), refused(60, 8));
    assert_eq!(window.write(56, &[1], &[&[1]]), refused(56, 9));
    assert_eq!(window.write(4, &[1], &[]), refused(4, 8));
    assert_eq!(window.read(60, &mut [0; 5]), refused(60, 5));
    assert_eq!(window.sub(8, 64).map(|_| ()), refused(8, 64));
    assert_eq!(window.sub(4, 8).map(|_| ()), refused(4, 8));
    let part = window.sub(32, 32).unwrap();
    part.store(0, 5).unwrap();
    assert_eq!(window.load(32), Ok(5));
    assert!(part.load(32).is_err());
    assert_eq!(window.read(64, &mut []), Ok(()));
}

#[test]
fn the_message_of_an_error_names_offset_length_and_window() {
    let error = window(64).load(100).unwrap_err();
    assert_eq!(
        error.to_string(),
        "access to 8 bytes at offset 100 of a window of 64 bytes: keep it inside, at an offset that is a multiple of 8"
    );
}
