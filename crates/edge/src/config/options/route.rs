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
    "Start of the request path. Each `[[route]]` has its own."
    "route".key = Template;
    "Template of the key. `{path}` is the request path without the query. `{uri}` is the same, \
     decoded, with slashes merged and dot segments resolved, as nginx's `$uri` is. `{scheme}` is \
     `https` for clients under TLS, here or at a trusted proxy, which has to replace \
     `X-Forwarded-Proto`, and `http` for others. `{tls.client.cn}` and `{tls.client.san}` are the \
     common name and the alternative name of the client's certificate, which `tls.client_ca` asks \
     for: a client without it gets 403."
    "route".content_type = MediaType;
    "`Content-Type` of values."
    "route".methods = MethodList;
    "Methods that poll. Others get 405."
    "route".wait_default = TimeSpan(Duration::ZERO, HOUR);
    "Wait of a request that names none. With `\"0s\"` Dwell responds at once."
    "route".wait_max = TimeSpan(Duration::ZERO, HOUR);
    "Longest wait. A request that asks for more gets this."
    "route".empty = Choice(EMPTY);
    "Status of the response to a stored empty value, which means \"nothing new\"."
    "route".coalesce_post = Truth;
    "POST polls that miss on one key share one upstream request, as GET polls do."
    "route".share_cookies = Truth;
    "Polls with a `Cookie` share responses with others, get stale values and fill the cache. They \
     do so without this option if the key has a `{cookie.NAME}`, `{claim.NAME}` or `{auth.NAME}`."
    "route".identity_headers = OneOrMany(Name, 0);
    "Names of further request headers that identify a client, such as `\"X-Api-Key\"`. A poll with \
     one shares nothing, unless that header or another identity is in the key."
    "route".on_delete = Choice(ON_DELETE);
    "Response to a held poll whose key is deleted or expires: the upstream's response, 404, or no \
     response until the next value."
    "route".allowed_origins = OneOrMany(Origin, 0);
    "Origins of the pages that may open a WebSocket, or `\"*\"` for all, in addition to the host \
     of the request and to `cors_origins`. Clients other than browsers send no origin, and may \
     open one."
    "route".websocket_publish = Truth;
    "WebSocket clients may store values of the route's keys. They need no token."
    "route".access.publish = Truth;
    "PUT, POST and DELETE with a `publish.token` store and remove the values of the route's keys. \
     POST does not poll then."
    "route".access.cors_origins = OneOrMany(WebOrigin, 0);
    "Origins whose pages may read the responses. With at least one, Dwell responds to the OPTIONS \
     requests of browsers that ask for permission."
    "route".access.cors_credentials = Truth;
    "Those pages may send cookies. Not possible with `\"*\"`."
    "route".access.cors_max_age = TimeSpan(Duration::ZERO, DAY);
    "How long a browser may remember a permission."
    "route".access.rate_per_address = OrOff(Written("rate such as `\"20/s\"` or `\"100/10s\"`"));
    "Requests of one client address, each key of a request counting as one. An IPv6 network of 64 \
     bits is one address. Beyond it: 429 with `Retry-After`."
    "route".access.rate_per_key = OrOff(Written("rate such as `\"20/s\"` or `\"100/10s\"`"));
    "Requests for one key. Beyond it: 429 with `Retry-After`."
    "route".access.rate_per_publisher = OrOff(Written("rate such as `\"20/s\"`"));
    "Values that one client address may store and remove by PUT, POST and DELETE, and one \
     WebSocket by frames. Beyond it: 429, or an error frame."
    "route".access.jwt = Truth;
    "Each request needs a token (see [jwt](#jwt)). Keys can be made of its claims: `{claim.NAME}`. \
     Without a valid token: 401."
    "route".access.auth = OrOff(Prefix);
    "Path that Dwell requests from the application to decide whether a client's request is \
     allowed. The application gets the method and the target as `X-Original-Method` and \
     `X-Original-URI`, the `Authorization` and the cookies. 2xx allows the request; 401 and 403 \
     are returned to the client. Keys can be made of the headers of the response: `{auth.NAME}`."
    "route".access.auth_time = TimeSpan(Duration::ZERO, HOUR);
    "How long Dwell reuses the application's decision for requests with the same credentials and \
     the same target."
    "route".fill = Truth;
    "Dwell stores the upstream's cacheable responses to GET polls: 200 with `s-maxage` or \
     `max-age`, which is how long they stay. It replaces no value. The upstream then gets \
     `upstream.default_host` as `Host`."
    "route".stale_if_error = TimeSpan(Duration::ZERO, DAY);
    "How long Dwell serves the last known value when a key has no value and the application fails. \
     Without an application: when the store does not respond. A `stale-if-error` of the response \
     wins. `\"0s\"` never serves it."
    "route".stale_while_revalidate = TimeSpan(Duration::ZERO, DAY);
    "With `fill`: how long Dwell serves an expired value while it requests a newer one from the \
     upstream. A `stale-while-revalidate` of the response wins."
    "route".negative = TimeSpan(Duration::ZERO, HOUR);
    "How long Dwell sends no further request for a key to the upstream after a 5xx or no response."
    "route".negative_not_found = TimeSpan(Duration::ZERO, HOUR);
    "How long Dwell sends no further request for a key to the upstream after a 404 or 410."
}

const EMPTY: &[(&str, EmptyAnswer)] = &[("200", EmptyAnswer::Ok), ("204", EmptyAnswer::NoContent)];
const ON_DELETE: &[(&str, OnDelete)] = &[
    ("origin", OnDelete::Origin),
    ("not-found", OnDelete::NotFound),
    ("keep-waiting", OnDelete::KeepWaiting),
];
