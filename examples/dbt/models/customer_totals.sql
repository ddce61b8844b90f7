{{ config(materialized='table', persist_docs={'relation': true, 'columns': true}) }}
select c.id, c.name, cast(coalesce(sum(o.amount), 0) as decimal(19, 2)) as total
from {{ ref('customers') }} c
left join {{ ref('orders_merged') }} o on o.customer_id = c.id
group by c.id, c.name
