//! Options of each `[[route]]`.

use super::bounds::{DAY, HOUR};
use crate::config::codec::{
    Choice, MediaType, MethodList, Name, OneOrMany, OrOff, Origin, Prefix, Template, TimeSpan,
    Truth, WebOrigin, Written,
};
use crate::config::{EmptyAnswer, OnDelete, RouteConfig};
use std::time::Duration;

options! {
    OPTIONS for RouteConfig:
    "route".prefix ["--poll-prefix"] = Prefix;
    "Start of the request path. Every `[[route]]` names its own."
    "route".key = Template;
    "How the key is made. `{path}` is the request path with the query stripped. `{uri}` is the \
     same decoded, with slashes merged and dot segments resolved, as nginx's `$uri` is. `{scheme}` \
     is `https` for clients under TLS, here or at a trusted proxy, which has to replace \
     `X-Forwarded-Proto`, and `http` for others. \
     `{tls.client.cn}` and `{tls.client.san}` are the common name and the alternative name of the \
     client's certificate, which `tls.client_ca` asks for: a client without it gets 403."
    "route".content_type = MediaType;
    "`Content-Type` of values."
    "route".methods = MethodList;
    "Methods that poll. Others get 405."
    "route".wait_default = TimeSpan(Duration::ZERO, HOUR);
    "Wait of a request that asks for none. `\"0s\"` answers at once."
    "route".wait_max = TimeSpan(Duration::ZERO, HOUR);
    "Longest wait. A request that asks for more gets this."
    "route".empty = Choice(EMPTY);
    "Status of the answer to a stored empty value, which means \"nothing new\"."
    "route".coalesce_post = Truth;
    "Whether POST polls that miss on one key share one upstream request, as GET polls do."
    "route".share_cookies = Truth;
    "Whether polls with a `Cookie` share answers with others, get stale values and fill the cache. \
     They do if the key has a `{cookie.NAME}`, `{claim.NAME}` or `{auth.NAME}`."
    "route".identity_headers = OneOrMany(Name, 0);
    "Names of further request headers that identify a client, such as `\"X-Api-Key\"`. A poll with \
     one shares nothing, unless that header or another identity is in the key."
    "route".on_delete = Choice(ON_DELETE);
    "What a held poll gets when its key is deleted or expires: the upstream's answer, 404, or \
     nothing until the next value."
    "route".allowed_origins = OneOrMany(Origin, 0);
    "Origins of the pages that may open a WebSocket, or `\"*\"` for all, beside those of the host \
     that the request is for and those that `cors_origins` names. Clients that are no browsers \
     name none, and may."
    "route".websocket_publish = Truth;
    "Whether a WebSocket may store values of the route's keys, which takes no token."
    "route".access.publish = Truth;
    "Whether PUT, POST and DELETE store and remove the values of the route's keys, by whoever \
     has a `publish.token`. POST does not poll then."
    "route".access.cors_origins = OneOrMany(WebOrigin, 0);
    "Origins whose pages may read the answers. With any, OPTIONS is answered to browsers that ask \
     for permission."
    "route".access.cors_credentials = Truth;
    "Whether those pages may send cookies; not with `\"*\"`."
    "route".access.cors_max_age = TimeSpan(Duration::ZERO, DAY);
    "How long a browser may remember what it was permitted."
    "route".access.rate_per_address = OrOff(Written("rate such as `\"20/s\"` or `\"100/10s\"`"));
    "Requests of one client address, each key of a request counting as one. An IPv6 network of 64 \
     bits is one address. Beyond it: 429 with `Retry-After`."
    "route".access.rate_per_key = OrOff(Written("rate such as `\"20/s\"` or `\"100/10s\"`"));
    "Requests for one key. Beyond it: 429 with `Retry-After`."
    "route".access.rate_per_publisher = OrOff(Written("rate such as `\"20/s\"`"));
    "Values that one client address may store and remove by PUT, POST and DELETE, and one \
     WebSocket by frames. Beyond it: 429, or an error frame."
    "route".access.jwt = Truth;
    "Whether a request needs a token (see [jwt](#jwt)), whose claims keys can be made of: \
     `{claim.NAME}`. Without a good one: 401."
    "route".access.auth = OrOff(Prefix);
    "Path at which the application is asked whether a request may be looked at, with its method \
     and target as `X-Original-Method` and `X-Original-URI`, its `Authorization` and its cookies. \
     2xx lets it in, 401 and 403 are passed on. Keys can be made of the answer's fields: \
     `{auth.NAME}`."
    "route".access.auth_time = TimeSpan(Duration::ZERO, HOUR);
    "How long the application's word is good for those who show the same and ask for the same."
    "route".fill = Truth;
    "Whether the upstream's answers to GET polls are put into the cache where they may be: 200 \
     with `s-maxage` or `max-age`, which is how long they stay there. Nothing that is there is \
     replaced. The upstream gets `upstream.default_host` as `Host` then."
    "route".stale_if_error = TimeSpan(Duration::ZERO, DAY);
    "How long the last known value is given when neither the cache nor the upstream answers. An \
     answer's own `stale-if-error` wins. `\"0s\"` never gives it."
    "route".stale_while_revalidate = TimeSpan(Duration::ZERO, DAY);
    "Where `fill` is on: how long the value that has expired is given while the upstream is asked \
     for a newer one. An answer's own `stale-while-revalidate` wins."
    "route".negative = TimeSpan(Duration::ZERO, HOUR);
    "How long the upstream is not asked again for a key that it answered with 5xx, or not at all."
    "route".negative_not_found = TimeSpan(Duration::ZERO, HOUR);
    "How long it is not asked again for a key that it answered with 404 or 410."
}

const EMPTY: &[(&str, EmptyAnswer)] = &[("200", EmptyAnswer::Ok), ("204", EmptyAnswer::NoContent)];
const ON_DELETE: &[(&str, OnDelete)] = &[
    ("origin", OnDelete::Origin),
    ("not-found", OnDelete::NotFound),
    ("keep-waiting", OnDelete::KeepWaiting),
];
