//! Rate limits, with radosgw's words.

use super::{Admin, AdminError, Params, Result};
use crate::access::settings;
use crate::rates::{GLOBAL, read_global};
use crate::records;
use nacre_s3::access::setting;
use nacre_s3::{GlobalRates, RateLimit, User};
use nacre_wire::to_vec;
use serde_json::{Value, json};

/// What a limit is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    User,
    Bucket,
    Anonymous,
}

/// What the parameters name, and whether they mean the limit of all that have none of their own.
fn scope_of(params: &Params) -> Result<(Scope, bool)> {
    let is_global = params.flag("global", false)?;
    match params.need("ratelimit-scope")? {
        "user" => Ok((Scope::User, is_global)),
        "bucket" => Ok((Scope::Bucket, is_global)),
        "anonymous" if is_global => Ok((Scope::Anonymous, true)),
        "anonymous" => Err(AdminError::argument("the limit of anonymous requests is a global one")),
        other => Err(AdminError::argument(format!(
            "a rate limit is of user, bucket or anonymous, not of {other:?}"
        ))),
    }
}

/// A limit with the changes that the parameters ask for.
fn changed(limit: &RateLimit, params: &Params, enables: Option<bool>) -> Result<RateLimit> {
    let number = |name: &str, before: u64| match params.number(name)? {
        None => Ok(before),
        Some(number) => {
            u64::try_from(number).map_err(|_| AdminError::argument(format!("{name} must not be negative")))
        }
    };
    Ok(RateLimit {
        is_enabled: match enables {
            Some(enables) => enables,
            None => params.flag("enabled", limit.is_enabled)?,
        },
        read_ops: number("max-read-ops", limit.read_ops)?,
        write_ops: number("max-write-ops", limit.write_ops)?,
        read_bytes: number("max-read-bytes", limit.read_bytes)?,
        write_bytes: number("max-write-bytes", limit.write_bytes)?,
    })
}

fn shown(limit: &RateLimit) -> Value {
    json!({
        "max_read_ops": limit.read_ops,
        "max_write_ops": limit.write_ops,
        "max_read_bytes": limit.read_bytes,
        "max_write_bytes": limit.write_bytes,
        "enabled": limit.is_enabled,
    })
}

impl Admin {
    pub(super) async fn rate_limit_set(&self, params: &Params, enables: Option<bool>) -> Result<Value> {
        match scope_of(params)? {
            (scope, true) => {
                let set = |global: &mut GlobalRates| {
                    let limit = match scope {
                        Scope::User => &mut global.user,
                        Scope::Bucket => &mut global.bucket,
                        Scope::Anonymous => &mut global.anonymous,
                    };
                    *limit = changed(limit, params, enables)?;
                    Ok::<(), AdminError>(())
                };
                let pools = self.store.pools().await?;
                let mut first = GlobalRates::default();
                set(&mut first)?;
                if !records::create(pools, GLOBAL, &first).await? {
                    records::update(pools, GLOBAL, set).await?;
                }
            }
            (Scope::Bucket, false) => {
                let bucket = self.bucket(params.need("bucket")?).await?;
                let before = settings(&bucket)?.rate_limit.unwrap_or_default();
                let limit = changed(&before, params, enables)?;
                self.buckets.set(&bucket, setting::RATE_LIMIT, Some(to_vec(&limit))).await?;
            }
            (Scope::User | Scope::Anonymous, false) => {
                let user = self.user_of(params).await?;
                let set = |user: &mut User| {
                    user.rate_limit = Some(changed(&user.rate_limit.unwrap_or_default(), params, enables)?);
                    Ok(())
                };
                self.update(&user.id, set).await?;
            }
        }
        Ok(Value::Null)
    }

    pub(super) async fn rate_limit_get(&self, params: &Params) -> Result<Value> {
        if params.flag("global", false)? {
            let GlobalRates { user, bucket, anonymous } = self.global_rates().await?;
            return Ok(json!({
                "bucket_ratelimit": shown(&bucket),
                "user_ratelimit": shown(&user),
                "anonymous_ratelimit": shown(&anonymous),
            }));
        }
        Ok(match scope_of(params)?.0 {
            Scope::Bucket => {
                let bucket = self.bucket(params.need("bucket")?).await?;
                json!({ "bucket_ratelimit": shown(&settings(&bucket)?.rate_limit.unwrap_or_default()) })
            }
            Scope::User | Scope::Anonymous => {
                let limit = self.user_of(params).await?.rate_limit;
                json!({ "user_ratelimit": shown(&limit.unwrap_or_default()) })
            }
        })
    }

    async fn global_rates(&self) -> Result<GlobalRates> {
        match self.store.find_pools().await? {
            None => Ok(GlobalRates::default()),
            Some(pools) => Ok(read_global(pools).await?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(pairs: &[(&str, &str)]) -> Params {
        Params(pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    #[test]
    fn limits_are_changed_one_by_one() {
        let before = RateLimit { read_ops: 7, ..RateLimit::default() };
        let after = changed(&before, &params(&[("max-write-ops", "3")]), Some(true)).unwrap();
        assert_eq!(after, RateLimit { is_enabled: true, read_ops: 7, write_ops: 3, ..RateLimit::default() });
        assert!(changed(&before, &params(&[("max-read-bytes", "-1")]), None).is_err());
        assert_eq!(shown(&before)["max_read_ops"], 7);
    }

    #[test]
    fn limit_of_anonymous_requests_is_a_global_one() {
        let scope = |pairs| scope_of(&params(pairs));
        assert_eq!(scope(&[("ratelimit-scope", "user")]).unwrap(), (Scope::User, false));
        let global = [("ratelimit-scope", "anonymous"), ("global", "true")];
        assert_eq!(scope(&global).unwrap(), (Scope::Anonymous, true));
        assert!(scope(&global[..1]).is_err());
        assert!(scope(&[("ratelimit-scope", "zone")]).is_err() && scope(&[]).is_err());
    }
}
