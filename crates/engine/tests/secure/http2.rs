//! An axum `Router` whose clients have agreed on HTTP/2.

use crate::grpc::{router, talk, talk_in_vain};
use crate::h2::Peer;
use crate::support::{Shown, connect_with, data};
use dwell_engine::Server;
use dwell_engine::handler::tower::service;
use dwell_engine::tls::Tls;
use rustls::version;

#[test]
fn calls_of_grpc_go_through_tls() {
    let tls = Tls::builder().certificate_files(data("certificate.pem"), data("key.pem"));
    let builder = Server::builder().tls(&tls.build().unwrap()).http2(true);
    let running = builder.listen(([127, 0, 0, 1], 0).into());
    let running = running.serve(service(router())).unwrap();
    for version in [&version::TLS13, &version::TLS12] {
        let shown = Shown::offering(&[b"h2"]).by(version);
        let mut peer = Peer::over(connect_with(running.addresses()[0], &shown));
        peer.begin();
        talk(&mut peer, 1);
        talk_in_vain(&mut peer, 3);
    }
}
