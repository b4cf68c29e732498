//! The method "none", which believes every name.

use crate::method::{
    CONNECTION_MODE_CRC, GlobalIds, Grant, METHOD_NONE, Offer, Prover, SessionSecret, Verdict, Verifier,
};
use crate::{ASKS_MONITOR, SHOWS_TICKET};
use nacre_base::errno;
use nacre_proto::types::{AuthName, EntityType};
use nacre_wire::{Decode, DecodeError, Encode, Reader, from_slice};

/// The payload of AUTH_REQUEST.
struct Payload {
    mode: u8,
    name: AuthName,
    /// 0: the client has none yet.
    global_id: u64,
}

impl Encode for Payload {
    fn encode(&self, out: &mut Vec<u8>) {
        self.mode.encode(out);
        self.name.encode(out);
        self.global_id.encode(out);
    }
}
impl Decode for Payload {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Payload { mode: u8::decode(r)?, name: AuthName::decode(r)?, global_id: u64::decode(r)? })
    }
}

/// States our name, and proves nothing.
pub struct NoneProver {
    pub name: AuthName,
    /// What a monitor assigned earlier; 0 if none did.
    pub global_id: u64,
}

impl Prover for NoneProver {
    fn open(&mut self, to: EntityType) -> Offer {
        let mode = if to == EntityType::Mon { ASKS_MONITOR } else { SHOWS_TICKET };
        let payload = Payload { mode, name: self.name.clone(), global_id: self.global_id };
        Offer { method: METHOD_NONE, modes: vec![CONNECTION_MODE_CRC], payload: nacre_wire::to_vec(&payload) }
    }
    fn answer(&mut self, _challenge: &[u8]) -> Option<Vec<u8>> {
        None
    }
    fn granted(&mut self, _global_id: u64, _payload: &[u8]) -> Result<Option<SessionSecret>, String> {
        Ok(None)
    }
}

/// Believes what the client says of itself.
pub struct NoneVerifier {
    pub global_ids: GlobalIds,
}

impl Verifier for NoneVerifier {
    fn methods(&self) -> Vec<u32> {
        vec![METHOD_NONE]
    }
    /// There is no secret to encrypt with.
    fn modes(&self) -> Vec<u32> {
        vec![CONNECTION_MODE_CRC]
    }
    fn judge(&mut self, _method: u32, _mode: u32, payload: &[u8]) -> Verdict {
        let Ok(Payload { mode, name, global_id }) = from_slice(payload) else {
            return Verdict::Refused { errno: errno::EINVAL };
        };
        let global_id = match (&mut self.global_ids, mode) {
            (GlobalIds::Assign(next), ASKS_MONITOR) if global_id == 0 => match next() {
                Some(id) => id,
                None => return Verdict::Later,
            },
            (GlobalIds::Assign(_), ASKS_MONITOR) | (_, SHOWS_TICKET) => global_id,
            _ => return Verdict::Refused { errno: errno::EOPNOTSUPP },
        };
        Verdict::Granted(Box::new(Grant { name, global_id, proved: None, reply: Vec::new(), session: None }))
    }
}
