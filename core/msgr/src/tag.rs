//! Frame tags.

use std::fmt;

/// What a frame is. Ceph: `Tag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Tag {
    Hello = 1,
    AuthRequest = 2,
    AuthBadMethod = 3,
    AuthReplyMore = 4,
    AuthRequestMore = 5,
    AuthDone = 6,
    AuthSignature = 7,
    ClientIdent = 8,
    ServerIdent = 9,
    IdentMissingFeatures = 10,
    SessionReconnect = 11,
    SessionReset = 12,
    SessionRetry = 13,
    SessionRetryGlobal = 14,
    SessionReconnectOk = 15,
    Wait = 16,
    Message = 17,
    Keepalive2 = 18,
    Keepalive2Ack = 19,
    Ack = 20,
}

impl Tag {
    const ALL: [(Tag, &'static str); 20] = [
        (Tag::Hello, "HELLO"),
        (Tag::AuthRequest, "AUTH_REQUEST"),
        (Tag::AuthBadMethod, "AUTH_BAD_METHOD"),
        (Tag::AuthReplyMore, "AUTH_REPLY_MORE"),
        (Tag::AuthRequestMore, "AUTH_REQUEST_MORE"),
        (Tag::AuthDone, "AUTH_DONE"),
        (Tag::AuthSignature, "AUTH_SIGNATURE"),
        (Tag::ClientIdent, "CLIENT_IDENT"),
        (Tag::ServerIdent, "SERVER_IDENT"),
        (Tag::IdentMissingFeatures, "IDENT_MISSING_FEATURES"),
        (Tag::SessionReconnect, "SESSION_RECONNECT"),
        (Tag::SessionReset, "SESSION_RESET"),
        (Tag::SessionRetry, "SESSION_RETRY"),
        (Tag::SessionRetryGlobal, "SESSION_RETRY_GLOBAL"),
        (Tag::SessionReconnectOk, "SESSION_RECONNECT_OK"),
        (Tag::Wait, "WAIT"),
        (Tag::Message, "MESSAGE"),
        (Tag::Keepalive2, "KEEPALIVE2"),
        (Tag::Keepalive2Ack, "KEEPALIVE2_ACK"),
        (Tag::Ack, "ACK"),
    ];

    pub(crate) fn from_byte(byte: u8) -> Option<Tag> {
        let known = Tag::ALL.get(usize::from(byte).wrapping_sub(1));
        known.map(|&(tag, _)| tag)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Tag::ALL[*self as usize - 1].1)
    }
}
