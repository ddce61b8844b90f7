{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id') }}
select id, customer_id, day, amount, changed_at
from {{ ref('orders') }}
{% if is_incremental() %}
where changed_at > (select max(changed_at) from {{ this }})
{% endif %}
