use super::*;
use crate::Window;
use crate::window::tests::window;

pub(crate) struct Pair {
    pub producer: RingProducer<Window>,
    pub consumer: RingConsumer<Window>,
    pub memory: Window,
    pub credit: Window,
}

pub(crate) fn pair(layout: Layout, start: u64) -> Pair {
    let memory = window(layout.required_bytes());
    let credit = window(CREDIT_BYTES);
    let producer = RingProducer::new(memory.clone(), layout, start, credit.clone()).unwrap();
    let consumer = RingConsumer::new(memory.clone(), layout, start, credit.clone()).unwrap();
    Pair {
        producer,
        consumer,
        memory,
        credit,
    }
}

pub(crate) fn pop(consumer: &mut RingConsumer<Window>) -> Option<(Vec<u8>, u64)> {
    let message = consumer.peek().unwrap()?;
    let mut bytes = vec![0; message.len_bytes];
    consumer.copy(0, &mut bytes).unwrap();
    consumer.release().unwrap();
    Some((bytes, message.time_ns))
}

#[test]
fn messages_of_every_size_come_out_in_order_and_whole() {
    let mut pair = pair(Layout::new(8, 1024, 300).unwrap(), 5);
    for round in 0..200_usize {
        let message: Vec<u8> = (0..round * 13 % 301).map(|i| (i + round) as u8).collect();
        let cut = message.len() / 3;
        pair.producer
            .push(&[&message[..cut], &message[cut..]], round as u64)
            .unwrap();
        assert_eq!(pop(&mut pair.consumer), Some((message, round as u64)));
    }
    assert_eq!(pair.consumer.peek(), Ok(None));
}
