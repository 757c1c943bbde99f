//! Batches whose entries succeed or fail one by one.

use crate::{ApiError, ErrorKind, ErrorReason};

/// Parses the entries, calls the service with the good ones, and puts all answers into the order of the entries.
pub(crate) async fn each<W, D, A, F>(
    entries: Vec<W>,
    mut parse: impl FnMut(W) -> Result<D, ApiError>,
    call: impl FnOnce(Vec<D>) -> F,
) -> Vec<Result<A, ApiError>>
where
    F: Future<Output = Vec<Result<A, ApiError>>>,
{
    let mut good = Vec::with_capacity(entries.len());
    let mut refused = Vec::with_capacity(entries.len());
    for entry in entries {
        match parse(entry) {
            Ok(entry) => {
                good.push(entry);
                refused.push(None);
            }
            Err(error) => refused.push(Some(error)),
        }
    }
    let answers = if good.is_empty() {
        Vec::new()
    } else {
        call(good).await
    };
    let mut answers = answers.into_iter();
    let answer = |refused: Option<ApiError>| match refused {
        Some(error) => Err(error),
        None => answers.next().unwrap_or_else(|| Err(no_answer())),
    };
    refused.into_iter().map(answer).collect()
}

/// The service answered fewer entries than it was asked; that is a fault of its own.
fn no_answer() -> ApiError {
    let text = "the service gave no answer for this entry";
    ApiError::new(ErrorKind::Internal, ErrorReason::AnswerMissing, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Even(u32);

    impl TryFrom<u32> for Even {
        type Error = ApiError;
        fn try_from(number: u32) -> Result<Self, ApiError> {
            if number % 2 == 1 {
                return Err(ApiError::invalid(
                    "number",
                    ErrorReason::InvalidValue,
                    "is odd",
                ));
            }
            Ok(Self(number))
        }
    }

    #[tokio::test]
    async fn f_138_a_bad_entry_fails_alone_and_answers_keep_their_places() {
        let call = async |good: Vec<Even>| good.into_iter().map(|n| Ok(n.0 * 10)).collect();
        let answers = each(vec![2, 3, 4, 5, 6], Even::try_from, call).await;
        let numbers: Vec<_> = answers.iter().map(|a| a.as_ref().ok().copied()).collect();
        assert_eq!(numbers, [Some(20), None, Some(40), None, Some(60)]);
    }

    #[tokio::test]
    async fn a_service_that_forgets_an_answer_is_found_out() {
        let call = async |_: Vec<Even>| vec![Ok(1)];
        let answers = each(vec![2, 4], Even::try_from, call).await;
        assert_eq!(answers[0], Ok(1));
        assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::Internal);
    }
}
