//! Bodies on their way in: the budget, slow clients, what becomes of stripes that nothing refers to.

use super::*;

#[tokio::test(start_paused = true)]
async fn copies_of_ranges_do_not_wait_for_one_another() {
    let rig = Rig::new(8 * MIB).await;
    rig.put("source", pieces(12 * MIB)).await;
    let create = Command::CreateUpload { bucket: rig.bucket.id, key: "k".into(), info: ObjectInfo::default() };
    let Reply::Upload(id) = rig.door.commit(&rig.session, create).await.unwrap() else { panic!("not an upload") };
    let copies = (1..=4).map(|number| {
        let source = CopySource::Bucket { bucket: "box".into(), key: "source".into(), version_id: None };
        let mut input = UploadPartCopyInput::builder();
        input.set_bucket("box".into());
        input.set_key("k".into());
        input.set_copy_source(source);
        input.set_part_number(number);
        input.set_upload_id(crate::ops::upload_text(id));
        crate::ops::copy::part(&rig.door, request(input.build().unwrap()))
    });
    for copied in timeout(SOON, futures::future::join_all(copies)).await.expect("none waits for ever") {
        copied.unwrap();
    }
    assert_eq!(rig.door.budget.bytes_used(), 0);
}

#[tokio::test(start_paused = true)]
async fn clients_that_stand_still_give_back_what_they_hold_while_others_wait() {
    let rig = Arc::new(Rig::new(8 * MIB).await);
    let ino = rig.session.ids.inode().await.unwrap();
    let begin = |length| {
        let (send, body) = sent();
        let rig = rig.clone();
        (send, tokio::spawn(async move { rig.ingest(ino, body, Some(length)).await }))
    };
    let stalled: Vec<_> = (0..3).map(|_| begin(5 * MIB)).collect();
    let content = pieces(5 * MIB);
    for (send, _) in &stalled {
        send.send(content[0].clone()).unwrap();
    }
    timeout(SOON, rig.put("other", pieces(9 * MIB))).await.expect("the budget comes free");
    // Those that stood still may go on, and nothing of theirs is lost or doubled.
    for (send, task) in stalled {
        content[1..].iter().for_each(|piece| send.send(piece.clone()).unwrap());
        drop(send);
        let body = timeout(SOON, task).await.unwrap().unwrap().unwrap();
        let ino = rig.session.ids.inode().await.unwrap();
        let (size, extents) = (body.size, body.extents);
        let command = |stripes| put_command(&rig.bucket, "late", ino, size, extents, stripes);
        body.stripes.commit(&rig.session, command).await.unwrap();
        assert!(rig.content(ino, size).await.unwrap() == content.concat());
    }
    assert_eq!(rig.door.budget.bytes_used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stands_still_keeps_its_stripe_whole_while_there_is_room() {
    let rig = Rig::new(64 * MIB).await;
    let (send, body) = sent();
    let late = async {
        for piece in pieces(4 * MIB) {
            tokio::time::sleep(Duration::from_secs(20)).await;
            send.send(piece).unwrap();
        }
        drop(send);
    };
    let (ingested, ()) = tokio::join!(rig.ingest(InodeId(0), body, Some(4 * MIB)), late);
    assert_eq!(ingested.unwrap().extents.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn stripes_of_an_upload_that_came_to_nothing_are_deleted() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["s3.upload_given_up", "s3.full"]);
    let rig = Arc::new(Rig::new(64 * MIB).await);
    let ino = rig.session.ids.inode().await.unwrap();

    // A digest that is wrong.
    let headers =
        HeaderMap::from_iter([(hyper::header::HeaderName::from_static("content-md5"), "1B2M2Y8AsgTpgAmY7PhCfg==".parse().unwrap())]);
    let refused = rig.ingest_with(ino, whole(pieces(6 * MIB)), Some(6 * MIB), &headers).await;
    assert_eq!(*refused.err().unwrap().code(), S3ErrorCode::BadDigest);
    rig.until_stripes(0).await;

    // A flush that failed.
    rig.fake.fail_next(Point::Flush, holdfast_objstore_client::Error::Full);
    assert!(rig.ingest(ino, whole(pieces(6 * MIB)), Some(6 * MIB)).await.is_err());
    rig.until_stripes(0).await;

    // A handler that was dropped in the middle of the body.
    let (send, body) = sent();
    let handler = tokio::spawn({
        let rig = rig.clone();
        async move { rig.ingest(ino, body, Some(20 * MIB)).await }
    });
    pieces(9 * MIB).into_iter().for_each(|piece| send.send(piece).unwrap());
    rig.until_stripes(2).await;
    handler.abort();
    rig.until_stripes(0).await;

    // A handler that was dropped before its commit, and a commit that was refused.
    drop(rig.ingest(ino, whole(pieces(5 * MIB)), None).await.unwrap());
    rig.until_stripes(0).await;
    let body = rig.ingest(ino, whole(pieces(5 * MIB)), None).await.unwrap();
    let nowhere = |stripes| {
        put_command(&Bucket { id: holdfast_objstore_proto::BucketId(99), ..rig.bucket.clone() }, "k", ino, body.size, body.extents, stripes)
    };
    assert!(body.stripes.commit(&rig.session, nowhere).await.is_err());
    drop(body.stripes);
    rig.until_stripes(0).await;

    // What was committed stays.
    rig.put("kept", pieces(5 * MIB)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.fake.stripes().len(), 2);
}

#[tokio::test]
async fn a_body_that_stood_still_is_answered_request_timeout() {
    let rig = Rig::new(8 * MIB).await;
    let begun = futures::stream::iter([Ok(pieces(1)[0].clone()), Err(std::io::Error::other(crate::guard::IDLE))]);
    let refused = rig.ingest(InodeId(0), StreamingBlob::wrap(begun), Some(MIB)).await.err().unwrap();
    assert_eq!((refused.code(), refused.status_code().unwrap().as_u16()), (&S3ErrorCode::RequestTimeout, 400));
}

#[tokio::test]
async fn a_small_body_travels_in_its_commit_and_is_read_back() {
    let rig = Rig::new(64 * MIB).await;
    rig.local.set_inline_bytes_max(30_000);
    for (key, length, declared) in
        [("known", 5000, true), ("chunked", 16 << 10, false), ("no room", 10_000, true), ("large", 16_385, false)]
    {
        let ino = rig.session.ids.inode().await.unwrap();
        let pieces = vec![Bytes::from(vec![1; 1000]), Bytes::from(vec![2; length - 1000])];
        let body = rig.ingest(ino, whole(pieces), declared.then_some(length as u64)).await.unwrap();
        assert_eq!((body.size, body.inline.len()), (length as u64, ["known", "chunked"].contains(&key) as usize), "{key}");
        rig.commit(key, ino, body).await;
        let content = rig.content(ino, length as u64).await.unwrap();
        assert!(content == [vec![1; 1000], vec![2; length - 1000]].concat(), "{key}");
    }
    assert_eq!((rig.fake.counts().writes, rig.door.budget.bytes_used()), (2, 0));
}
