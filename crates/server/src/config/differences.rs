//! Settings of `[server]` that differ between two files, by name: they need a restart.

use super::server::ServerConfig;

impl ServerConfig {
    /// The names of the keys that differ.
    pub(crate) fn differences(&self, other: &ServerConfig) -> Vec<&'static str> {
        let ServerConfig {
            http,
            admin,
            hosts,
            trusted_proxies,
            cors,
            tls,
            threads,
            has_threads,
            memory_bytes,
            connections_max,
            connections_per_address_max,
            head_bytes_max,
            body_bytes_max,
            head,
            body,
            body_rate_min,
            send,
            send_rate_min,
            idle,
            drain,
            date,
            access_log,
            slow_log,
            durability,
            cold_model,
            changes_kept_bytes,
            changes_kept,
            scan_rows_max,
            query_model,
            query_threads,
            query,
            query_log_rows,
            query_spill_bytes,
            backups,
            // Not keys of the file.
            statement_bytes: _,
            series_bytes: _,
            read_ahead: _,
        } = self;
        let all = [
            ("http", *http == other.http),
            ("admin", *admin == other.admin),
            ("hosts", *hosts == other.hosts),
            ("trusted_proxies", *trusted_proxies == other.trusted_proxies),
            ("cors", *cors == other.cors),
            // A reload may change the files' names.
            ("tls", tls.is_some() == other.tls.is_some()),
            // A number that follows from the rest of the file stays as it was at the start.
            ("threads", *has_threads == other.has_threads && (!has_threads || *threads == other.threads)),
            ("memory", *memory_bytes == other.memory_bytes),
            ("connections_max", *connections_max == other.connections_max),
            ("connections_per_address_max", *connections_per_address_max == other.connections_per_address_max),
            ("head_bytes_max", *head_bytes_max == other.head_bytes_max),
            ("body_bytes_max", *body_bytes_max == other.body_bytes_max),
            ("head_seconds", *head == other.head),
            ("body_seconds", *body == other.body),
            ("body_rate_min", *body_rate_min == other.body_rate_min),
            ("send_seconds", *send == other.send),
            ("send_rate_min", *send_rate_min == other.send_rate_min),
            ("idle_seconds", *idle == other.idle),
            ("drain_seconds", *drain == other.drain),
            ("date", *date == other.date),
            ("access_log", *access_log == other.access_log),
            ("slow_log_seconds", *slow_log == other.slow_log),
            ("durability", *durability == other.durability),
            ("cold_model", *cold_model == other.cold_model),
            ("changes_kept_bytes", *changes_kept_bytes == other.changes_kept_bytes),
            ("changes_kept_seconds", *changes_kept == other.changes_kept),
            ("scan_rows_max", *scan_rows_max == other.scan_rows_max),
            ("query_model", *query_model == other.query_model),
            ("query_threads", *query_threads == other.query_threads),
            ("query_seconds", *query == other.query),
            ("query_log_rows", *query_log_rows == other.query_log_rows),
            ("query_spill", *query_spill_bytes == other.query_spill_bytes),
            ("backups", *backups == other.backups),
        ];
        all.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect()
    }
}
