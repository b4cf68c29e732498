//! GetObjectAttributes: what is known of an object, without its body.

use crate::access::Which;
use crate::checksums::kind;
use crate::objects::timestamp;
use crate::service::Core;
use crate::versions::version_of;
use nacre_s3::Head;
use s3s::dto::{
    Checksum, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectAttributesParts, ObjectPart,
    StorageClass,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// The most parts of an answer.
const PARTS_MAX: usize = 1000;

impl Core {
    /// GetObjectAttributes.
    pub async fn get_object_attributes(
        &self,
        req: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        let input = req.input;
        let bucket = self.open(&req.extensions).await?;
        let version = version_of(input.version_id.as_deref())?;
        let object = self.object_for(&req.extensions, Which::Target, &bucket, &input.key, version).await?;
        let asks = |name: &str| input.object_attributes.iter().any(|asked| asked.as_str() == name);
        let after = match &input.part_number_marker {
            None => 0,
            Some(marker) => marker
                .to_string()
                .parse()
                .map_err(|_| s3_error!(InvalidArgument, "part-number-marker must be a number"))?,
        };
        let max = input.max_parts.map_or(Ok(PARTS_MAX), usize::try_from);
        let max = max.map_err(|_| s3_error!(InvalidArgument, "max-parts must not be negative"))?;
        let class = match object.entry.storage_class.as_str() {
            "" => "STANDARD".to_owned(),
            class => class.to_owned(),
        };
        Ok(S3Response::new(GetObjectAttributesOutput {
            checksum: checksum_of(&object.head).filter(|_| asks("Checksum")),
            // Without quotes, other than in a header.
            e_tag: asks("ETag").then(|| crate::objects::etag(&object.entry.etag)),
            last_modified: Some(timestamp(object.entry.mtime)),
            object_parts: parts_of(&object.head, after, max.min(PARTS_MAX)).filter(|_| asks("ObjectParts")),
            object_size: i64::try_from(object.entry.size).ok().filter(|_| asks("ObjectSize")),
            storage_class: asks("StorageClass").then(|| StorageClass::from(class)),
            version_id: bucket.version_text(object.entry.version()),
            ..GetObjectAttributesOutput::default()
        }))
    }
}

fn checksum_of(head: &Head) -> Option<Checksum> {
    let sum = head.checksum.as_ref()?;
    let mut checksum = Checksum { checksum_type: Some(kind(sum)), ..Checksum::default() };
    crate::checksums::set_checksum!(checksum, &head.checksum);
    Some(checksum)
}

/// The parts behind this number; none for an object that was put at once.
fn parts_of(head: &Head, after: usize, max: usize) -> Option<GetObjectAttributesParts> {
    let total = head.parts.len();
    if total == 0 {
        return None;
    }
    let number = |at: usize| i32::try_from(at).ok();
    let page = head.parts.iter().enumerate().skip(after).take(max);
    let parts: Vec<ObjectPart> = page
        .map(|(at, size)| ObjectPart {
            part_number: number(at + 1),
            size: i64::try_from(*size).ok(),
            ..ObjectPart::default()
        })
        .collect();
    let last = after + parts.len();
    let is_truncated = max > 0 && last < total;
    Some(GetObjectAttributesParts {
        is_truncated: Some(is_truncated),
        max_parts: number(max),
        next_part_number_marker: is_truncated.then(|| last.to_string().parse().ok()).flatten(),
        part_number_marker: after.to_string().parse().ok(),
        parts: Some(parts),
        total_parts_count: number(total),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_parts_end() {
        let head = Head { parts: vec![5, 6, 7], ..Head::default() };
        let page = |after, max| {
            let parts = parts_of(&head, after, max).expect("parts");
            let sizes: Vec<_> = parts.parts.unwrap_or_default().iter().filter_map(|part| part.size).collect();
            (sizes, parts.is_truncated, parts.total_parts_count)
        };
        assert_eq!(page(0, 2), (vec![5, 6], Some(true), Some(3)));
        assert_eq!(page(2, 2), (vec![7], Some(false), Some(3)));
        assert_eq!(page(9, 2), (vec![], Some(false), Some(3)));
        assert_eq!(page(0, 0), (vec![], Some(false), Some(3)));
        assert!(parts_of(&Head::default(), 0, 9).is_none());
    }
}
