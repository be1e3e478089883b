//! A client that hangs on its way to the OSDs, and goes on later as if nothing had happened: what it holds is taken from it meanwhile,
//! when others want it, and then it sends what it had in hand.

use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::told::Told;
use holdfast_objstore_client::{Objects, Result, StripeWrite, UsableSpace};
use holdfast_objstore_proto::{Code, OsdId, StripeMeta};
use std::ops::Range;
use std::sync::Arc;

/// The object cluster as a client sees it that can be made to hang.
pub struct Hung {
    inner: Arc<dyn Objects>,
    hangs: Told<bool>,
}

impl Hung {
    pub fn over(inner: Arc<dyn Objects>) -> Arc<Self> {
        Arc::new(Self { inner, hangs: Told::new(false) })
    }

    pub fn hang(&self, on: bool) {
        self.hangs.tell(|h| *h = on);
    }

    async fn awake(&self) {
        self.hangs.until(|h| (!h).then_some(())).await;
    }
}

impl Objects for Hung {
    fn write(&self, write: StripeWrite) -> BoxFuture<'_, Result<Arc<StripeMeta>>> {
        Box::pin(async move {
            self.awake().await;
            self.inner.write(write).await
        })
    }
    fn flush(&self, stripes: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<Vec<Arc<StripeMeta>>>> {
        Box::pin(async move {
            self.awake().await;
            self.inner.flush(stripes).await
        })
    }
    fn read<'a>(&'a self, stripe: &'a Arc<StripeMeta>, range: Range<u32>) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(async move {
            self.awake().await;
            self.inner.read(stripe, range).await
        })
    }
    fn prefetch(&self, stripe: &Arc<StripeMeta>, range: Range<u32>) {
        self.inner.prefetch(stripe, range);
    }
    fn delete(&self, stripes: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.awake().await;
            self.inner.delete(stripes).await
        })
    }
    fn drop_caches(&self) {
        self.inner.drop_caches();
    }
    fn space(&self, code: Code) -> UsableSpace {
        self.inner.space(code)
    }
    fn osds(&self) -> Vec<(OsdId, Option<String>)> {
        self.inner.osds()
    }
}
