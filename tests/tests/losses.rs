//! What a subscriber is missing after a fault under load is accounted for by the gateways that
//! survived it, as `docs/decisions/004-losses.md` promises: to the message where somebody could
//! count.

use busway_tests::role::{Role, Runner, Seen};
use busway_tests::stream::{DEEP, accounts, flows, flows_of, kept_back, stream, taken};
use busway_tests::{Bus, Rig, eventually, on_each_bus};
use rustix::process::Signal;

const SERVICE: &str = "counted";

fn conclude(publisher: Runner, subscriber: &Runner) -> (u64, Seen) {
    let published = publisher.finish().sent;
    let report = subscriber.until_seen("the last message arrives", |seen| seen.last == published);
    let seen = report.seen[&1];
    assert_eq!((report.corrupt, seen.backwards), (0, 0), "{report:?}");
    (published, seen)
}

fn is_up(rig: &Rig, host: usize) -> Option<bool> {
    rig.status(host).map(|status| status.links[0].up)
}

fn goes_on_alone(publisher: &Runner) {
    let sent = publisher.report().sent;
    publisher.until("the publisher goes on", |report| report.sent > sent + 500);
}

fn samples_taken_from_killed_publisher_are_not_lost(bus: Bus) {
    let rig = Rig::pair(bus);
    let (mut publisher, subscriber) = stream(&rig, SERVICE, DEEP);
    publisher.0.kill();
    eventually("its gateway notices", || {
        rig.service(0, SERVICE).filter(|here| here.sends_to.is_empty())
    });
    let next = rig.run(0, &Role::publish(SERVICE, DEEP, 2));
    flows_of(2, &next, &subscriber, "after the publisher was killed");
    let published = next.finish().sent;
    let report = subscriber.until("the last message arrives", |report| {
        report.seen[&2].last == published
    });
    let (dead, next) = (report.seen[&1], report.seen[&2]);
    assert_eq!(
        (dead.backwards, next.backwards, next.first),
        (0, 0, 1),
        "{report:?}"
    );
    // Not exact: how many the dead one published after its last report nobody knows. Exact: all
    // that was taken arrived, or is counted on both sides.
    let (arrived, missing) = (dead.received + next.received, dead.missing + next.missing);
    let [sending, receiving] = accounts(&rig, SERVICE, arrived + missing, arrived);
    assert_eq!(
        (kept_back(&sending), receiving.counter("lost")),
        (missing, missing)
    );
}

fn losses_of_killed_sending_gateway_end_at_its_restart(bus: Bus) {
    let mut rig = Rig::pair(bus);
    let (publisher, subscriber) = stream(&rig, SERVICE, DEEP);
    rig.gateway(0).kill();
    eventually("the link is seen to be down", || is_up(&rig, 1).filter(|up| !up));
    goes_on_alone(&publisher);
    let (before, lost_before) = eventually("what was on its way has arrived", || {
        let (seen, there) = (subscriber.seen(1), rig.service(1, SERVICE)?);
        (there.counter("received") == seen.received).then(|| (seen, there.counter("lost")))
    });
    assert_eq!(before.missing, lost_before, "{before:?}");
    rig.start_gateway(0);
    flows(&publisher, &subscriber, "after the sending gateway was killed");
    let (published, seen) = conclude(publisher, &subscriber);
    let receiving = eventually("all that arrived is accounted for", || {
        rig.service(1, SERVICE)
            .filter(|receiving| receiving.counter("received") == seen.received)
    });
    assert_eq!(receiving.counter("origin_restarts"), 1);
    // Not counted: what was published while there was no gateway, since nobody could. Exact: it is
    // one gap, from the last message of the dead gateway to the first of the next one, and the rest
    // of what is missing is accounted for.
    let uncounted = seen.missing - receiving.counter("lost");
    let by_next = published - before.last - uncounted;
    let [sending, _] = accounts(&rig, SERVICE, by_next, seen.received);
    assert_eq!(sending.counter("sent"), seen.received - before.received);
    assert_eq!(kept_back(&sending), receiving.counter("lost") - lost_before);
}

fn sender_counts_losses_of_killed_receiving_gateway(bus: Bus) {
    let mut rig = Rig::pair(bus);
    let (publisher, subscriber) = stream(&rig, SERVICE, DEEP);
    rig.gateway(1).kill();
    eventually("the link is seen to be down", || is_up(&rig, 0).filter(|up| !up));
    goes_on_alone(&publisher);
    rig.start_gateway(1);
    flows(&publisher, &subscriber, "after the receiving gateway was killed");
    let (published, seen) = conclude(publisher, &subscriber);
    // Exact: each message that was published is accounted for by the surviving gateway.
    let sending = eventually("all are accounted for", || {
        rig.service(0, SERVICE)
            .filter(|sending| taken(sending) == published)
    });
    // Not exact: whether a message whose receipt the dead gateway had not confirmed reached the
    // subscriber.
    let missing = published - seen.received;
    let (least, in_doubt) = (kept_back(&sending), sending.counter("in_doubt"));
    assert!(
        (least..=least + in_doubt).contains(&missing),
        "{missing} missing, {least} kept back, {in_doubt} in doubt: {seen:?} {sending:?}"
    );
}

fn killed_subscriber_costs_other_subscribers_no_message(bus: Bus) {
    let rig = Rig::pair(bus);
    let mut dies = rig.run(1, &Role::subscribe(SERVICE, DEEP)).ready();
    let (publisher, neighbour) = stream(&rig, SERVICE, DEEP);
    flows(&publisher, &dies, "to the one that dies");
    dies.0.kill();
    let successor = rig.run(1, &Role::subscribe(SERVICE, DEEP)).ready();
    flows(&publisher, &successor, "to its successor");
    let (published, seen) = conclude(publisher, &neighbour);
    // Exact on both sides: no gateway and no link was lost. What is missing, if anything, is what a
    // channel had no room for while iceoryx2 connected the new subscriber.
    let [sending, receiving] = accounts(&rig, SERVICE, published, seen.received);
    assert_eq!((seen.first, seen.received + seen.missing), (1, published));
    assert_eq!(
        (kept_back(&sending), receiving.counter("lost")),
        (seen.missing, seen.missing)
    );
    let report = successor.until_seen("the last message arrives there too", |seen| {
        seen.last == published
    });
    let successor = report.seen[&1];
    assert_eq!(successor.backwards, 0, "{successor:?}");
    assert!(successor.missing <= seen.missing, "{successor:?} {seen:?}");
}

/// Stops a gateway, as a cable is cut: it neither sends nor takes anything, and loses nothing of
/// what it knows.
fn losses_while_a_gateway_stands_still(bus: Bus, stopped: usize) {
    let mut rig = Rig::pair(bus);
    let (publisher, subscriber) = stream(&rig, SERVICE, DEEP);
    rig.gateway(stopped).signal(Signal::STOP);
    eventually("the link is seen to be down", || {
        is_up(&rig, 1 - stopped).filter(|up| !up)
    });
    goes_on_alone(&publisher);
    rig.gateway(stopped).signal(Signal::CONT);
    flows(&publisher, &subscriber, "after the gateway stood still");
    let (published, seen) = conclude(publisher, &subscriber);
    // Both gateways lived through it, so both know everything: the sending one each message, the
    // receiving one each gap.
    let [sending, receiving] = accounts(&rig, SERVICE, published, seen.received);
    assert_eq!(receiving.counter("lost"), seen.missing, "{seen:?} {receiving:?}");
    assert_eq!(receiving.counter("origin_restarts"), 0);
    let (least, in_doubt) = (kept_back(&sending), sending.counter("in_doubt"));
    assert!(
        (least..=least + in_doubt).contains(&(published - seen.received)),
        "{least} kept back, {in_doubt} in doubt: {seen:?} {sending:?}"
    );
    assert!(rig.gateway(0).ended().is_none() && rig.gateway(1).ended().is_none());
}

fn stopped_receiving_gateway_continues_and_losses_are_counted(bus: Bus) {
    losses_while_a_gateway_stands_still(bus, 1);
}

fn stopped_sending_gateway_continues_and_losses_are_counted(bus: Bus) {
    losses_while_a_gateway_stands_still(bus, 0);
}

on_each_bus!(
    samples_taken_from_killed_publisher_are_not_lost,
    losses_of_killed_sending_gateway_end_at_its_restart,
    sender_counts_losses_of_killed_receiving_gateway,
    killed_subscriber_costs_other_subscribers_no_message,
    stopped_receiving_gateway_continues_and_losses_are_counted,
    stopped_sending_gateway_continues_and_losses_are_counted,
);
