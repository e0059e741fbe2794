//! Requests that are made again while the API server cannot answer: an import that throttling interrupts would be
//! incomplete.

use std::time::Duration;

use reeve_client::Error as ClientError;
use tokio::time::sleep;

/// How often a request is made.
const ATTEMPTS: u32 = 6;

/// The first pause. Each further one is twice as long, and none is shorter than the server requests.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The result of `request`, which is made again while `cause` is an outage.
pub(crate) async fn again<T, E>(
    mut request: impl AsyncFnMut() -> Result<T, E>,
    cause: impl Fn(&E) -> Option<&ClientError>,
) -> Result<T, E> {
    let mut made = 1;
    loop {
        let result = request().await;
        let error = result.as_ref().err().and_then(&cause);
        match error.and_then(|error| pause(error, made)) {
            Some(pause) => sleep(pause).await,
            None => return result,
        }
        made += 1;
    }
}

/// The pause after a request that was made `made` times, or `None` if it is not made again.
fn pause(error: &ClientError, made: u32) -> Option<Duration> {
    if made >= ATTEMPTS || !error.is_outage() {
        return None;
    }
    let own = FIRST_PAUSE * 2_u32.pow(made - 1);
    let named = error.retry_after().unwrap_or_default();
    Some(own.max(named).min(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(error: &ClientError) -> Option<&ClientError> {
        Some(error)
    }

    fn deadline() -> ClientError {
        ClientError::Deadline {
            request: "create".into(),
            after: Duration::from_secs(1),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_waited_for_and_ends_the_attempts_after_half_a_minute() {
        let begin = tokio::time::Instant::now();
        let mut made = 0;
        let request = async || {
            made += 1;
            if made < 3 { Err(deadline()) } else { Ok(made) }
        };
        assert_eq!(again(request, any).await.unwrap(), 3);
        assert_eq!(begin.elapsed(), Duration::from_millis(1500));
        let mut made = 0;
        let request = async || {
            made += 1;
            Err::<(), _>(deadline())
        };
        again(request, any).await.unwrap_err();
        assert_eq!(made, 6);
        assert_eq!(begin.elapsed(), Duration::from_secs(17));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_final() {
        let mut made = 0;
        let request = async || {
            made += 1;
            let request = "create".to_owned();
            let message = "no".to_owned();
            Err::<(), _>(ClientError::Invalid { request, message })
        };
        again(request, any).await.unwrap_err();
        assert_eq!(made, 1);
    }
}
