//! Requests to a broker and its answers, in versions that brokers from Kafka 2.4 on understand, 4.x included.

use crate::answer_shape::{AnswerPart, check_shape};
use crate::kafka_error::KafkaError;
use crate::record_batches::{FetchedRecords, messages};
use bytes::{BufMut as _, Bytes, BytesMut};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponsePartition;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiKey, CreateTopicsRequest, CreateTopicsResponse, FetchRequest, FetchResponse,
    ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse, ProduceRequest,
    ProduceResponse, RequestHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use kafka_protocol::records::{
    Compression, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Record,
    RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The topic of all data.
pub(crate) const TOPIC: &str = "seatrial";

/// A request, the version of it that is used, and the shape of its answer.
pub(crate) trait KafkaRequest: Encodable + HeaderVersion {
    const KEY: ApiKey;
    const VERSION: i16;
    const ANSWER: &'static [AnswerPart];
    type Answer: Decodable;
}

impl KafkaRequest for MetadataRequest {
    const KEY: ApiKey = ApiKey::Metadata;
    const VERSION: i16 = 8;
    const ANSWER: &'static [AnswerPart] = &[
        AnswerPart::Bytes(4),
        AnswerPart::List(&[
            AnswerPart::Bytes(4),
            AnswerPart::Text,
            AnswerPart::Bytes(4),
            AnswerPart::Text,
        ]),
        AnswerPart::Text,
        AnswerPart::Bytes(4),
        AnswerPart::List(&[
            AnswerPart::Bytes(2),
            AnswerPart::Text,
            AnswerPart::Bytes(1),
            AnswerPart::List(&[
                AnswerPart::Bytes(14),
                AnswerPart::List(&[AnswerPart::Bytes(4)]),
                AnswerPart::List(&[AnswerPart::Bytes(4)]),
                AnswerPart::List(&[AnswerPart::Bytes(4)]),
            ]),
            AnswerPart::Bytes(4),
        ]),
        AnswerPart::Bytes(4),
    ];
    type Answer = MetadataResponse;
}

impl KafkaRequest for CreateTopicsRequest {
    const KEY: ApiKey = ApiKey::CreateTopics;
    const VERSION: i16 = 4;
    const ANSWER: &'static [AnswerPart] = &[
        AnswerPart::Bytes(4),
        AnswerPart::List(&[AnswerPart::Text, AnswerPart::Bytes(2), AnswerPart::Text]),
    ];
    type Answer = CreateTopicsResponse;
}

impl KafkaRequest for ProduceRequest {
    const KEY: ApiKey = ApiKey::Produce;
    const VERSION: i16 = 8;
    const ANSWER: &'static [AnswerPart] = &[
        AnswerPart::List(&[
            AnswerPart::Text,
            AnswerPart::List(&[
                AnswerPart::Bytes(30),
                AnswerPart::List(&[AnswerPart::Bytes(4), AnswerPart::Text]),
                AnswerPart::Text,
            ]),
        ]),
        AnswerPart::Bytes(4),
    ];
    type Answer = ProduceResponse;
}

impl KafkaRequest for ListOffsetsRequest {
    const KEY: ApiKey = ApiKey::ListOffsets;
    const VERSION: i16 = 5;
    const ANSWER: &'static [AnswerPart] = &[
        AnswerPart::Bytes(4),
        AnswerPart::List(&[AnswerPart::Text, AnswerPart::List(&[AnswerPart::Bytes(26)])]),
    ];
    type Answer = ListOffsetsResponse;
}

impl KafkaRequest for FetchRequest {
    const KEY: ApiKey = ApiKey::Fetch;
    const VERSION: i16 = 11;
    const ANSWER: &'static [AnswerPart] = &[
        AnswerPart::Bytes(10),
        AnswerPart::List(&[
            AnswerPart::Text,
            AnswerPart::List(&[
                AnswerPart::Bytes(30),
                AnswerPart::List(&[AnswerPart::Bytes(16)]),
                AnswerPart::Bytes(4),
                AnswerPart::Data,
            ]),
        ]),
    ];
    type Answer = FetchResponse;
}

/// A request with its length and its header, as it is sent. The number is that of its answer.
pub(crate) fn encoded<R: KafkaRequest>(request: &R, number: i32) -> Result<Bytes, KafkaError> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY as i16)
        .with_request_api_version(R::VERSION)
        .with_correlation_id(number)
        .with_client_id(Some(StrBytes::from_static_str("seatrial")));
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    let unencodable = |error| KafkaError::NotSent(format!("a request is not encoded: {error:#}"));
    header
        .encode(&mut frame, R::header_version(R::VERSION))
        .map_err(unencodable)?;
    request
        .encode(&mut frame, R::VERSION)
        .map_err(unencodable)?;
    let length = i32::try_from(frame.len() - 4);
    let length = length.map_err(|_| KafkaError::NotSent("a request is too long".into()))?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame.freeze())
}

/// The answer in a frame without its length, if it has this number.
pub(crate) fn decoded<R: KafkaRequest>(frame: &Bytes, number: i32) -> Result<R::Answer, String> {
    let (found, _) = frame
        .split_first_chunk()
        .ok_or("an answer without a number")?;
    let found = i32::from_be_bytes(*found);
    if found != number {
        return Err(format!(
            "the answer to request {found} in place of {number}"
        ));
    }
    let mut body = frame.slice(4..);
    check_shape(R::ANSWER, &body)?;
    R::Answer::decode(&mut body, R::VERSION).map_err(|error| format!("an answer: {error:#}"))
}

fn topic_name() -> TopicName {
    TopicName(StrBytes::from_static_str(TOPIC))
}

/// Asks for all brokers, and for the leaders and replicas of the topic.
pub(crate) fn metadata() -> MetadataRequest {
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name()));
    MetadataRequest::default()
        .with_topics(Some(vec![topic]))
        .with_allow_auto_topic_creation(false)
}

/// The partitions of the topic, in their order.
pub(crate) fn partitions(
    answer: MetadataResponse,
) -> Result<Vec<MetadataResponsePartition>, KafkaError> {
    let mut topics = answer.topics.into_iter();
    let topic = topics.next().ok_or_else(|| lost("no topic"))?;
    refused(topic.error_code, -1)?;
    let mut partitions = topic.partitions;
    partitions.sort_by_key(|partition| partition.partition_index);
    let mut numbers = partitions.iter().map(|partition| partition.partition_index);
    if !numbers.by_ref().eq(0..partitions.len() as i32) {
        return Err(lost("partitions that are not numbered from 0 on"));
    }
    Ok(partitions)
}

/// Creates the topic.
pub(crate) fn create_topic(
    partitions: u32,
    replicas: u32,
    settings: &[(&'static str, String)],
    limit: Duration,
) -> CreateTopicsRequest {
    let setting = |(name, value): &(&'static str, String)| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_static_str(name))
            .with_value(Some(StrBytes::from_string(value.clone())))
    };
    let topic = CreatableTopic::default()
        .with_name(topic_name())
        .with_num_partitions(partitions as i32)
        .with_replication_factor(replicas as i16)
        .with_configs(settings.iter().map(setting).collect());
    CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(milliseconds(limit))
}

/// Was the topic created, or is it there?
pub(crate) fn created(answer: &CreateTopicsResponse) -> Result<(), KafkaError> {
    let topic = answer.topics.first().ok_or_else(|| lost("no topic"))?;
    match refused(topic.error_code, -1) {
        Err(KafkaError::Refused {
            error: ResponseError::TopicAlreadyExists,
            ..
        }) => Ok(()),
        other => other,
    }
}

/// Acknowledgement by all replicas that are in sync, as a number.
pub(crate) const ALL: i16 = -1;

/// Appends one message to a partition. The broker answers within the limit, unless `acks` is 0: then it never does.
pub(crate) fn produce(
    partition: i32,
    key: &Bytes,
    number: i64,
    acks: i16,
    limit: Duration,
) -> Result<ProduceRequest, KafkaError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let record = Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: NO_PRODUCER_EPOCH,
        timestamp_type: TimestampType::Creation,
        offset: 0,
        sequence: NO_SEQUENCE,
        timestamp: now.map_or(0, |now| now.as_millis() as i64),
        key: Some(key.clone()),
        value: Some(Bytes::from(number.to_string())),
        #[expect(
            clippy::default_trait_access,
            reason = "the map is of a crate that is not asked for by name"
        )]
        headers: Default::default(),
    };
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    let mut batch = BytesMut::new();
    RecordBatchEncoder::encode(&mut batch, [&record], &options)
        .map_err(|error| KafkaError::NotSent(format!("a record is not encoded: {error:#}")))?;
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(batch.freeze()));
    let topic = TopicProduceData::default()
        .with_name(topic_name())
        .with_partition_data(vec![data]);
    Ok(ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(milliseconds(limit))
        .with_topic_data(vec![topic]))
}

/// The offset of a message that was acknowledged.
pub(crate) fn produced(answer: &ProduceResponse) -> Result<i64, KafkaError> {
    let topic = answer.responses.first();
    let partition = topic.and_then(|topic| topic.partition_responses.first());
    let partition = partition.ok_or_else(|| lost("no partition"))?;
    refused(partition.error_code, partition.base_offset)?;
    if partition.base_offset < 0 {
        return Err(lost("an acknowledgement without an offset"));
    }
    Ok(partition.base_offset)
}

/// No replica asks.
const CONSUMER: i32 = -1;
/// The time that stands for the end.
const LATEST: i64 = -1;

/// Asks the leader for the end of a partition, as consumers see it.
pub(crate) fn end(partition: i32) -> ListOffsetsRequest {
    let partition = ListOffsetsPartition::default()
        .with_partition_index(partition)
        .with_timestamp(LATEST);
    let topic = ListOffsetsTopic::default()
        .with_name(topic_name())
        .with_partitions(vec![partition]);
    ListOffsetsRequest::default()
        .with_replica_id(CONSUMER.into())
        .with_topics(vec![topic])
}

/// The offset after the last message that consumers see.
pub(crate) fn end_offset(answer: &ListOffsetsResponse) -> Result<i64, KafkaError> {
    let topic = answer.topics.first();
    let partition = topic.and_then(|topic| topic.partitions.first());
    let partition = partition.ok_or_else(|| lost("no partition"))?;
    refused(partition.error_code, -1)?;
    Ok(partition.offset)
}

/// Asks for the messages of a partition from this offset on, without waiting for new ones.
pub(crate) fn fetch(partition: i32, offset: i64, bytes_max: i32) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(bytes_max);
    let topic = FetchTopic::default()
        .with_topic(topic_name())
        .with_partitions(vec![partition]);
    FetchRequest::default()
        .with_replica_id(CONSUMER.into())
        .with_max_bytes(bytes_max)
        // Outside of a session of fetches.
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}

/// The messages that a fetch from this offset returned.
pub(crate) fn fetched(answer: FetchResponse, offset: i64) -> Result<FetchedRecords, KafkaError> {
    refused(answer.error_code, -1)?;
    let topic = answer.responses.into_iter().next();
    let partition = topic.and_then(|topic| topic.partitions.into_iter().next());
    let partition = partition.ok_or_else(|| lost("no partition"))?;
    refused(partition.error_code, -1)?;
    let records = partition.records.unwrap_or_default();
    messages(records, offset).map_err(KafkaError::Lost)
}

/// The refusal that a code stands for; 0 is none.
pub(crate) fn refused(code: i16, offset: i64) -> Result<(), KafkaError> {
    match ResponseError::try_from_code(code) {
        Some(error) => Err(KafkaError::Refused { error, offset }),
        None => Ok(()),
    }
}

fn lost(reason: &str) -> KafkaError {
    KafkaError::Lost(format!("an answer with {reason}"))
}

fn milliseconds(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}
