#!/bin/sh
# Makes verbs.rs and cma.rs anew. Needed only when a function or type is added to the lists below; a build never runs it.
# Made with bindgen 0.73.2 (cargo install bindgen-cli), libclang-dev, libibverbs-dev and librdmacm-dev 44.0 of Debian 12.
# Only what is used is listed. Types that the libraries alone allocate are opaque behind their first fields.
set -e
cd "$(dirname "$0")"
common="--no-layout-tests --no-doc-comments --no-prepend-enum-name --default-enum-style consts
  --no-derive-debug --wrap-unsafe-ops --rust-target 1.85 --rust-edition 2024 --formatter rustfmt --use-core
  --sort-semantically --dynamic-link-require-all --disable-header-comment"
opaque="--blocklist-type _*pthread_.* --blocklist-type __atomic_wide.* --opaque-type ibv_srq --opaque-type ibv_ah --opaque-type ibv_ah_attr
  --opaque-type _ibv_device_ops --opaque-type ibv_mw --opaque-type ibv_mw_bind --opaque-type _compat_ibv_port_attr"

# The header makes a macro of ibv_reg_mr; the function behind it is what is wanted.
printf '#include <infiniband/verbs.h>\n#undef ibv_reg_mr\n' >verbs.h
bindgen $common $opaque --dynamic-loading Libibverbs \
  --raw-line '//! libibverbs, as far as it is used. Made by `generate.sh`: do not edit.' \
  --raw-line '// Locks differ from processor to processor. They come last in what only the library allocates:' \
  --raw-line '// nothing behind them is used.' \
  --raw-line 'pub type pthread_mutex_t = [u8; 0];' \
  --raw-line 'pub type pthread_cond_t = [u8; 0];' \
  --allowlist-function 'ibv_(alloc_pd|dealloc_pd|reg_mr|dereg_mr|create_comp_channel|destroy_comp_channel|create_cq|destroy_cq|get_cq_event|ack_cq_events|query_device|modify_qp|wc_status_str)' \
  --allowlist-type 'ibv_(send_wr|recv_wr|sge|wc|qp_init_attr|transport_type|device_attr|context|access_flags|send_flags|qp_attr_mask)' \
  verbs.h -o verbs.rs

echo '#include <rdma/rdma_cma.h>' >cma.h
bindgen $common --dynamic-loading Librdmacm --no-recursive-allowlist --opaque-type 'rdma_(route|ud_param)' \
  --raw-line '//! librdmacm, as far as it is used. Made by `generate.sh`: do not edit.' \
  --raw-line 'use super::verbs::*;' \
  --raw-line 'pub type sockaddr = ::core::ffi::c_void;' \
  --raw-line 'pub type __be16 = u16;' \
  --allowlist-function 'rdma_(create_event_channel|destroy_event_channel|create_id|destroy_id|bind_addr|resolve_addr|resolve_route|create_qp|destroy_qp|connect|listen|accept|reject|disconnect|get_cm_event|ack_cm_event|get_src_port|set_option)' \
  --allowlist-type 'rdma_(cm_event|cm_event_type|conn_param|ud_param|route|cm_id|event_channel|port_space)|__BindgenOpaque.*' \
  --allowlist-var 'RDMA_OPTION_ID(_ACK_TIMEOUT)?' \
  cma.h -o cma.rs
rm verbs.h cma.h
