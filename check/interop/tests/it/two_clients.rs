//! An image and two clients; one at a time holds its exclusive lock.

use nacre_interop::Cluster;

fn cluster() -> Cluster {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create images 8").unwrap();
    c.run("rbd pool init images").unwrap();
    c
}

#[test]
fn an_image_changes_hands_and_no_death_keeps_it() {
    let c = cluster();
    for what in ["hand_over", "a_dead_owner", "a_dead_host", "a_broken_lock"] {
        print!("{}", c.python("two_clients.py", &["images", what]).unwrap());
    }
}
