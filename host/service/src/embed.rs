//! Texts that wait for vectors: whose turn it is, what goes into one call, and who is told.
//!
//! Requests take turns text by text, so that a short one does not wait for the end of a long one. One that nobody waits for
//! any more leaves before its next text.

use std::collections::VecDeque;

use sf_core::limits::{EMBED_TOKENS_MAX, RESUMES_MAX};
use sf_core::{EmbedBatch, Fault, FaultKind, Token};
use tokio::sync::oneshot::{Receiver, Sender, channel};

/// The vectors of a request's texts in their order, one after the other.
pub(crate) type Vectors = Result<Vec<f32>, Fault>;

/// One request's texts.
#[derive(Debug)]
pub(crate) struct EmbedJob {
    texts: Vec<Vec<Token>>,
    /// Texts that have their vector.
    done: usize,
    vectors: Vec<f32>,
    /// Runs in calls of its own: a call that it was in has failed.
    alone: bool,
    /// Engines that died with it.
    lost: u32,
    answer: Sender<Vectors>,
}

impl EmbedJob {
    /// Texts, none of them empty, and where their vectors will arrive.
    pub(crate) fn new(texts: Vec<Vec<Token>>) -> (EmbedJob, Receiver<Vectors>) {
        let (answer, answered) = channel();
        let job = EmbedJob { texts, done: 0, vectors: Vec::new(), alone: false, lost: 0, answer };
        (job, answered)
    }

    /// Tokens of all its texts.
    pub(crate) fn tokens(&self) -> u64 {
        self.texts.iter().map(|text| text.len() as u64).sum()
    }
}

/// Everything that waits, the next one first.
#[derive(Debug, Default)]
pub(crate) struct EmbedQueue {
    jobs: VecDeque<EmbedJob>,
    batch: EmbedBatch,
    /// For each job from the front on how many texts of it are in the batch, in the batch's order of jobs.
    taken: Vec<usize>,
    /// Requests that got their vectors.
    pub(crate) finished: u64,
}

impl EmbedQueue {
    pub(crate) fn push(&mut self, job: EmbedJob) {
        self.jobs.push_back(job);
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// What [`EmbedQueue::gather`] gathered.
    pub(crate) fn batch(&self) -> &EmbedBatch {
        &self.batch
    }

    /// Fills the batch with as many texts as one call takes, in turns; false when nothing waits.
    pub(crate) fn gather(&mut self) -> bool {
        self.jobs.retain(|job| !job.answer.is_closed());
        self.batch.clear();
        self.taken.clear();
        // One that must be alone waits until it comes first.
        let together = self.jobs.iter().take_while(|job| !job.alone).count();
        let count = if together == 0 { self.jobs.len().min(1) } else { together };
        self.taken.resize(count, 0);
        let mut tokens = 0;
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            for (job, taken) in self.jobs.iter().zip(&mut self.taken) {
                let Some(text) = job.texts.get(job.done + *taken) else { continue };
                if tokens > 0 && tokens + text.len() > EMBED_TOKENS_MAX {
                    // A shorter one behind it would pass it again and again.
                    goes_on = false;
                    break;
                }
                tokens += text.len();
                *taken += 1;
                goes_on = true;
            }
        }
        for (job, &taken) in self.jobs.iter().zip(&self.taken) {
            job.texts[job.done..job.done + taken].iter().for_each(|text| self.batch.push(text));
        }
        !self.batch.lengths.is_empty()
    }

    /// Hands out the batch's vectors. Requests that are complete are answered; those that go on come behind all others, and
    /// those that found no room before them.
    pub(crate) fn settle(&mut self, vectors: &[f32]) {
        let dims = vectors.len() / self.batch.lengths.len().max(1);
        let (mut at, mut first) = (0, VecDeque::new());
        for taken in std::mem::take(&mut self.taken) {
            let Some(mut job) = self.jobs.pop_front() else { break };
            if taken == 0 {
                first.push_back(job);
                continue;
            }
            job.vectors.extend_from_slice(&vectors[at..at + taken * dims]);
            (at, job.done) = (at + taken * dims, job.done + taken);
            if job.done < job.texts.len() {
                self.jobs.push_back(job);
                continue;
            }
            self.finished += 1;
            // Whoever does not wait any more needs nothing.
            let _ = job.answer.send(Ok(job.vectors));
        }
        first.append(&mut self.jobs);
        self.jobs = first;
    }

    /// The engine died: the batch's requests are tried again, each alone, so that only the one that kills engines fails.
    pub(crate) fn lost(&mut self) {
        self.each_of_batch(|job| {
            job.lost += 1;
            (job.lost > RESUMES_MAX).then(|| {
                let message = format!("{} engines in a row died while they computed it", job.lost);
                Fault::new(FaultKind::Engine, "engines_lost", message)
                    .hint("this request may be what ends them; see the server's log for what each died of")
            })
        });
    }

    /// The engine refused the batch: one request fails, several are tried again, each alone.
    pub(crate) fn refused(&mut self, fault: &Fault) {
        let is_one = self.taken.iter().filter(|taken| **taken > 0).count() == 1;
        self.each_of_batch(|_| is_one.then(|| fault.clone()));
    }

    /// Fails everything that waits.
    pub(crate) fn fail_all(&mut self, fault: &Fault) {
        for job in self.jobs.drain(..) {
            let _ = job.answer.send(Err(fault.clone()));
        }
    }

    /// Parts the batch's requests from each other; one that gets a fault is over.
    fn each_of_batch(&mut self, mut fault: impl FnMut(&mut EmbedJob) -> Option<Fault>) {
        let mut kept = VecDeque::with_capacity(self.jobs.len());
        for taken in std::mem::take(&mut self.taken) {
            let Some(mut job) = self.jobs.pop_front() else { break };
            if taken > 0 {
                job.alone = true;
                if let Some(fault) = fault(&mut job) {
                    let _ = job.answer.send(Err(fault));
                    continue;
                }
            }
            kept.push_back(job);
        }
        kept.append(&mut self.jobs);
        self.jobs = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of requests, each given by its texts' lengths; all tokens of request `i` are `i`.
    fn queue(requests: &[&[usize]]) -> (EmbedQueue, Vec<Receiver<Vectors>>) {
        let mut queue = EmbedQueue::default();
        let answers = requests.iter().zip(0..).map(|(lengths, number)| {
            let texts = lengths.iter().map(|&length| vec![Token(number); length]).collect();
            let (job, answer) = EmbedJob::new(texts);
            queue.push(job);
            answer
        });
        let answers = answers.collect();
        (queue, answers)
    }

    /// One element per text: its first token times 1000 plus its length.
    fn compute(queue: &mut EmbedQueue) {
        let mut rest = &queue.batch.tokens[..];
        let vectors: Vec<f32> = queue
            .batch
            .lengths
            .iter()
            .map(|&length| {
                let (text, behind) = rest.split_at(length as usize);
                rest = behind;
                (text[0].0 * 1000 + length) as f32
            })
            .collect();
        queue.settle(&vectors);
    }

    fn run(queue: &mut EmbedQueue) -> Vec<Vec<u32>> {
        let mut calls = Vec::new();
        while queue.gather() {
            calls.push(queue.batch.lengths.clone());
            compute(queue);
        }
        calls
    }

    #[test]
    fn requests_share_a_call_and_each_gets_its_own_vectors_in_order() {
        let (mut queue, mut answers) = queue(&[&[3, 1], &[2], &[5, 4, 6]]);
        assert_eq!(run(&mut queue), [vec![3, 1, 2, 5, 4, 6]]);
        let got: Vec<_> = answers.iter_mut().map(|answer| answer.try_recv().unwrap().unwrap()).collect();
        assert_eq!(got, [vec![3.0, 1.0], vec![1002.0], vec![2005.0, 2004.0, 2006.0]]);
        assert_eq!((queue.len(), queue.finished), (0, 3));
    }

    #[test]
    fn a_call_keeps_to_its_tokens_and_a_short_request_does_not_wait_for_a_long_one() {
        let (mut queue, mut answers) = queue(&[&[400; 6], &[10]]);
        assert!(queue.gather());
        assert_eq!(queue.batch.lengths, [400, 400, 10], "in turns");
        compute(&mut queue);
        assert!(answers[1].try_recv().is_ok());
        assert_eq!(run(&mut queue), [vec![400, 400], vec![400, 400]]);
        assert_eq!(answers[0].try_recv().unwrap().unwrap().len(), 6);
    }

    #[test]
    fn a_text_that_found_no_room_comes_first_in_the_next_call() {
        let (mut queue, mut answers) = queue(&[&[400; 6], &[900]]);
        assert!(queue.gather());
        assert_eq!(queue.batch.lengths, [400], "the second does not fit and is not passed");
        compute(&mut queue);
        assert!(queue.gather());
        assert_eq!(queue.batch.lengths, [900]);
        compute(&mut queue);
        assert!(answers[1].try_recv().is_ok());
    }

    #[test]
    fn a_text_longer_than_a_call_goes_alone() {
        let (mut queue, _answers) = queue(&[&[EMBED_TOKENS_MAX + 5], &[1]]);
        assert_eq!(run(&mut queue), [vec![EMBED_TOKENS_MAX as u32 + 5], vec![1]]);
    }

    #[test]
    fn a_request_that_nobody_waits_for_leaves_before_its_next_text() {
        let (mut queue, mut answers) = queue(&[&[1020; 4], &[7]]);
        assert!(queue.gather());
        compute(&mut queue);
        answers.remove(0);
        assert_eq!(run(&mut queue), [vec![7]]);
    }

    #[test]
    fn a_refused_call_is_tried_request_by_request_and_only_the_bad_one_fails() {
        let (mut queue, mut answers) = queue(&[&[1, 1], &[2], &[3]]);
        let fault = Fault::new(FaultKind::Engine, "embedding_failed", "no");
        let mut calls = Vec::new();
        while queue.gather() {
            calls.push(queue.batch.lengths.clone());
            if queue.batch.lengths.contains(&2) {
                queue.refused(&fault);
            } else {
                compute(&mut queue);
            }
        }
        assert_eq!(calls, [vec![1, 1, 2, 3], vec![1, 1], vec![2], vec![3]]);
        let got: Vec<_> = answers.iter_mut().map(|answer| answer.try_recv().unwrap()).collect();
        assert_eq!(got, [Ok(vec![1.0, 1.0]), Err(fault), Ok(vec![2003.0])]);
    }

    #[test]
    fn a_request_that_kills_engines_is_given_up_and_the_others_are_answered() {
        let (mut queue, mut answers) = queue(&[&[1], &[2]]);
        let mut deaths = 0;
        while queue.gather() {
            if queue.batch.lengths.contains(&2) {
                deaths += 1;
                queue.lost();
            } else {
                compute(&mut queue);
            }
        }
        assert_eq!(deaths, RESUMES_MAX + 1);
        assert_eq!(answers[0].try_recv().unwrap(), Ok(vec![1.0]));
        assert_eq!(answers[1].try_recv().unwrap().unwrap_err().code, "engines_lost");
    }

    #[test]
    fn what_waits_when_a_model_is_given_up_is_told_why() {
        let (mut queue, mut answers) = queue(&[&[1], &[2]]);
        queue.fail_all(&Fault::new(FaultKind::Unavailable, "model_retired", "no"));
        assert!(
            answers.iter_mut().all(|answer| answer.try_recv().unwrap().unwrap_err().code == "model_retired")
        );
    }
}
