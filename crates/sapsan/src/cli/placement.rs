//! How keys are spread over Redis nodes: for `proxy` and `reshard`.

use clap::{Args, ValueEnum};
use proxy::config::{DistributionKind, Spread};

/// How keys are spread over nodes, for the commands that know nodes.
#[derive(Debug, Args)]
pub(crate) struct SpreadArguments {
    /// How keys are spread over the nodes
    #[arg(long, value_enum, default_value_t = HashKind::Crc32)]
    pub(crate) hash: HashKind,
    /// Hash function of ketama, modula and random, by twemproxy's names
    #[arg(long, value_name = "NAME", default_value = "fnv1a_64", value_parser = hash_function)]
    pub(super) hash_function: proxy::placement::Hash,
    /// Two characters, as in {}: of a key, only the part between the first of each is hashed. Not for slots
    #[arg(long, value_name = "XX", value_parser = hash_tag)]
    pub(super) hash_tag: Option<[u8; 2]>,
}

impl SpreadArguments {
    pub(crate) fn spread(&self) -> Spread {
        let distribution = match self.hash {
            HashKind::Crc32 => return Spread::Crc32 { hash_tag: self.hash_tag },
            HashKind::Slots => return Spread::Slots,
            HashKind::Ketama => DistributionKind::Ketama,
            HashKind::Modula => DistributionKind::Modula,
            HashKind::Random => DistributionKind::Random,
        };
        Spread::Twemproxy { hash: self.hash_function, distribution, hash_tag: self.hash_tag }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HashKind {
    /// CRC-32 of the key, or of the tag at its end if it has one, modulo the number of nodes: as RedisSharding does
    Crc32,
    /// twemproxy's consistent hashing: a ring of hashes
    Ketama,
    /// twemproxy's hash modulo the number of nodes
    Modula,
    /// A random node: for caches whose nodes hold the same data
    Random,
    /// Hash slots of Redis Cluster: the given nodes are asked for all others
    Slots,
}

fn hash_function(name: &str) -> Result<proxy::placement::Hash, String> {
    let known = proxy::placement::Hash::ALL.iter().find(|(known, _)| *known == name);
    known.map(|(_, hash)| *hash).ok_or_else(|| {
        let names: Vec<&str> = proxy::placement::Hash::ALL.iter().map(|(name, _)| *name).collect();
        format!("it is none of {}", names.join(", "))
    })
}

fn hash_tag(text: &str) -> Result<[u8; 2], String> {
    text.as_bytes().try_into().map_err(|_| "it is not two characters, as {}".to_owned())
}
